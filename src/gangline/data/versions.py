"""Versions and aliases of data sets in the store: written once and signed, listed, resolved, removed.

    datasets/<name>/<version>.json        the document, put if absent; version: first 8 digits of its digest
    datasets/<name>/<version>.sig.json    signature over it, by a key of the site
    datasets/<name>/aliases/<alias>.json  signed, changed by compare-and-set alone

A version exists when its document does: shards and signature are written before. Drivers check signatures against the
keys that the site trusts; ranks have no keys, and read the same document as a blob by the digest that their plan names.
"""

import re
import secrets
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Protocol

from gangline.errors import GateError, IntegrityError, StorageError
from gangline.spec.codec import Document
from gangline.spec.config.data_keys import REFERENCE, SCHEME
from gangline.spec.config.problems import refusal, show
from gangline.spec.data_source import DatasetUse
from gangline.spec.dataset import MOST_MANIFEST_BYTES, NAME, PREFIX, Dataset, dataset_key
from gangline.storage.objects.blobs import PREFIX as PREFIX_OF_BLOBS
from gangline.storage.objects.blobs import put_blob
from gangline.storage.objects.protocol import Blob, ObjectStore, get_bounded, list_all
from gangline.units import now

LATEST = "latest"
"""Alias of the version that was made last; a reference without a version means it."""
VERSION = re.compile(r"[0-9a-f]{8}")
_PURPOSE = b"gangline dataset 1\n"
_MOST_SIGNATURE_BYTES = 4096
_NEWEST_SHOWN = 5
_DOCUMENT = re.compile(rf"{PREFIX}(?P<name>{NAME.pattern})/(?P<version>{VERSION.pattern})\.json")


class DatasetSigner(Protocol):
    """Key that signs versions: `signing.keys.SigningKey`."""

    @property
    def key_id(self) -> str:
        """First digits of the digest of its public half."""
        ...

    def sign(self, data: bytes) -> str:
        """Signature over `data`, base64."""
        ...


class DatasetVerifier(Protocol):
    """Public half of a key: `signing.keys.PublicKey`."""

    def verify(self, signature: str, data: bytes) -> None:
        """Raises IntegrityError unless `signature` is this key's over `data`."""
        ...


Trusted = Mapping[str, DatasetVerifier]
"""Public keys by id whose signatures count."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DatasetSignature(Document):
    """`datasets/<name>/<version>.sig.json`."""

    digest: str
    """SHA-256 of the document."""
    key_id: str
    signature: str


@dataclass(frozen=True, kw_only=True, slots=True)
class DatasetAlias(Document):
    """Version that an alias of a data set names."""

    schema: int = 1
    name: str
    alias: str
    version: str
    digest: str
    """SHA-256 of the version's document."""
    generation: int
    """Incremented by each change; two changes never share one."""
    previous: str | None = None
    who: str
    time: str
    nonce: str
    """Random; after a lost answer the alias is read back and compared with it."""
    key_id: str
    signature: str = ""
    """Signature over this document with an empty signature."""

    @property
    def key(self) -> str:
        """Key of the alias in the store."""
        return alias_key(self.name, self.alias)


@dataclass(frozen=True, kw_only=True, slots=True)
class DatasetEntry:
    """A version in a listing."""

    name: str
    version: str
    modified: float
    """Seconds since the epoch at which it was written, by the store's clock."""

    @property
    def reference(self) -> str:
        """`NAME@VERSION`."""
        return f"{self.name}@{self.version}"


def alias_key(name: str, alias: str) -> str:
    """Key of an alias in the store."""
    return f"{PREFIX}{name}/aliases/{alias}.json"


def signature_key(name: str, version: str) -> str:
    """Key of the signature of a version."""
    return dataset_key(name, version).removesuffix(".json") + ".sig.json"


def parse_reference(text: str, place: str = "") -> tuple[str, str]:
    """Name, and version or alias, of `dataset:NAME[@VERSION or @ALIAS]`; `dataset:` may be left out.

    Raises:
        ConfigError: It is something else; the message begins with `place`, a key of line.toml.
    """
    match = REFERENCE.fullmatch(text if text.startswith(SCHEME) else SCHEME + text)
    if match is None:
        head = f"{place}: " if place else ""
        raise refusal(f"{head}wanted dataset:NAME, dataset:NAME@VERSION or dataset:NAME@ALIAS, found {show(text)}")
    return match["name"], match["version"] or LATEST


def dataset_use(dataset: Dataset) -> DatasetUse:
    """What a plan says of a version that it reads."""
    return DatasetUse(
        name=dataset.name, version=dataset.version, digest=dataset.digest,
        num_samples=sum(shard.rows for shard in dataset.shards if shard.split == "train"),
        size_bytes=sum(shard.size_bytes for shard in dataset.shards),
    )  # fmt: skip


def read_dataset(store: ObjectStore, use: DatasetUse) -> Dataset:
    """The version that a plan uses, by its digest: ranks may read blobs alone, and have no keys.

    Raises:
        StorageError: The store does not have it.
        IntegrityError: The store has other bytes, or another version.
    """
    blob = get_bounded(store, PREFIX_OF_BLOBS + use.digest, most_bytes=MOST_MANIFEST_BYTES)
    if blob is None:
        raise StorageError(f"{store.url}: wanted the document of {use.name}@{use.version}, {use.digest}, found no blob")
    if (found := sha256(blob.data).hexdigest()) != use.digest:
        raise IntegrityError(f"{use.name}@{use.version}: wanted digest {use.digest[:12]}, found {found[:12]}; not read")
    return _parsed(blob.data, use.name, use.version)


def resolve_dataset(store: ObjectStore, reference: str, trusted: Trusted, *, place: str = "") -> Dataset:
    """The version that `dataset:NAME[@VERSION or @ALIAS]` names now, once its signature is checked.

    Raises:
        ConfigError: There is no such version or alias; the message lists the newest versions.
        IntegrityError: A document was changed, or is signed by no key of `trusted`.
    """
    name, version = parse_reference(reference, place)
    digest = None
    if not VERSION.fullmatch(version):
        alias = read_alias(store, name, version, trusted)
        if alias is None:
            raise _no_such(store, name, f"alias {version}" if version != LATEST else "version", place)
        version, digest = alias.version, alias.digest
    data = _document(store, name, version)
    if data is None:
        raise _no_such(store, name, f"version {version}", place)
    dataset = _parsed(data, name, version)
    if digest not in (None, dataset.digest):
        raise IntegrityError(f"{dataset.key}: its alias names digest {str(digest)[:12]}, found {dataset.digest[:12]}")
    blob = get_bounded(store, signature_key(name, version), most_bytes=_MOST_SIGNATURE_BYTES)
    if blob is None:
        raise IntegrityError(f"{dataset.key} has no signature; gangline data pack or add makes one with the site's key")
    _verify(dataset, DatasetSignature.from_json(blob.data), trusted)
    return dataset


def write_dataset(store: ObjectStore, dataset: Dataset, signer: DatasetSigner, trusted: Trusted) -> bool:
    """Sign and write a version whose shards are stored, also as a blob; false: another writer made the same before.

    Raises:
        IntegrityError: Another data set has this name and version.
    """
    signature = DatasetSignature(
        digest=dataset.digest, key_id=signer.key_id, signature=signer.sign(_PURPOSE + dataset.to_json())
    )
    put_blob(store, dataset.to_json())
    _write_signature(store, dataset, signature, trusted)
    if store.put_if_absent(dataset.key, dataset.to_json()) is not None:
        return True
    if _document(store, dataset.name, dataset.version) != dataset.to_json():
        raise IntegrityError(
            f"{dataset.key} holds another data set whose digest begins alike; choose another name for this one"
        )
    return False


def _write_signature(store: ObjectStore, dataset: Dataset, signature: DatasetSignature, trusted: Trusted) -> None:
    """Put the signature, or replace one that no trusted key made for this document."""
    key, data = signature_key(dataset.name, dataset.version), signature.to_json()
    while store.put_if_absent(key, data) is None:
        blob = get_bounded(store, key, most_bytes=_MOST_SIGNATURE_BYTES)
        if blob is None:
            continue
        with suppress(IntegrityError):
            return _verify(dataset, DatasetSignature.from_json(blob.data), trusted)
        if store.compare_and_set(key, data, blob.etag) is not None:
            return None
    return None


def read_alias(store: ObjectStore, name: str, alias: str, trusted: Trusted) -> DatasetAlias | None:
    """An alias, its signature checked; None: there is none."""
    blob = get_bounded(store, alias_key(name, alias), most_bytes=_MOST_SIGNATURE_BYTES)
    return None if blob is None else _checked_alias(blob, name, alias, trusted)


def set_alias(
    store: ObjectStore, dataset: Dataset, alias: str, signer: DatasetSigner, trusted: Trusted, *, who: str
) -> DatasetAlias:
    """Point an alias at a version; writes nothing where it names that version already.

    Raises:
        ConfigError: The alias has no name of one, or that of a version.
        GateError: Another writer changed it meanwhile.
    """
    if not NAME.fullmatch(alias) or VERSION.fullmatch(alias):
        raise refusal(f"wanted an alias like stable, found {show(alias)}; eight hexadecimal digits are a version")
    key = alias_key(dataset.name, alias)
    blob = get_bounded(store, key, most_bytes=_MOST_SIGNATURE_BYTES)
    current = None if blob is None else _checked_alias(blob, dataset.name, alias, trusted)
    if current is not None and current.digest == dataset.digest:
        return current
    draft = DatasetAlias(
        name=dataset.name, alias=alias, version=dataset.version, digest=dataset.digest,
        generation=current.generation + 1 if current else 1, previous=current.version if current else None, who=who,
        time=now(), nonce=secrets.token_hex(8), key_id=signer.key_id,
    )  # fmt: skip
    moved = replace(draft, signature=signer.sign(_PURPOSE + draft.to_json()))
    data = moved.to_json()
    try:
        etag = store.put_if_absent(key, data) if blob is None else store.compare_and_set(key, data, blob.etag)
    except StorageError:  # the answer may be lost and the alias written
        if (found := store.get(key)) is None or found.data != data:
            raise
        return moved
    if etag is None:
        raise GateError(
            f"another writer changed {dataset.name}@{alias} meanwhile; it was not set to {dataset.version}; look at it"
            " with gangline data list, then set it again"
        )
    return moved


def list_datasets(store: ObjectStore, name: str | None = None) -> tuple[DatasetEntry, ...]:
    """Versions of one data set, or of all: by name, newest first."""
    entries = list_all(store, PREFIX if name is None else f"{PREFIX}{name}/")
    found = [(match, entry) for entry in entries if (match := _DOCUMENT.fullmatch(entry.key))]
    made = [DatasetEntry(name=at["name"], version=at["version"], modified=entry.modified) for at, entry in found]
    return tuple(
        sorted(made, key=lambda dataset_entry: (dataset_entry.name, -dataset_entry.modified, dataset_entry.version))
    )


def aliases_of(store: ObjectStore, name: str, trusted: Trusted) -> tuple[DatasetAlias, ...]:
    """Aliases of a data set that a trusted key signed, by name."""
    prefix = f"{PREFIX}{name}/aliases/"
    names = [entry.key.removeprefix(prefix).removesuffix(".json") for entry in list_all(store, prefix)]
    aliases = (read_alias(store, name, alias, trusted) for alias in names if NAME.fullmatch(alias))
    return tuple(alias for alias in aliases if alias is not None)


def remove_dataset(store: ObjectStore, name: str, version: str, trusted: Trusted, *, users: Iterable[str]) -> None:
    """Delete document and signature of a version, and the alias `latest` if it names it; its shards stay.

    Args:
        users: Runs and models that name the version.

    Raises:
        GateError: A run, a model or another alias names it.
    """
    aliases = [alias.alias for alias in aliases_of(store, name, trusted) if alias.version == version]
    named = [*users, *(f"alias {alias}" for alias in aliases if alias != LATEST)]
    if named:
        more = f" and {len(named) - 8} more" if len(named) > 8 else ""
        raise GateError(f"{name}@{version} is named by {', '.join(named[:8])}{more}; it is not removed")
    if LATEST in aliases:
        store.delete(alias_key(name, LATEST))
    store.delete(dataset_key(name, version))
    store.delete(signature_key(name, version))


def _document(store: ObjectStore, name: str, version: str) -> bytes | None:
    blob = get_bounded(store, dataset_key(name, version), most_bytes=MOST_MANIFEST_BYTES)
    return None if blob is None else blob.data


def _parsed(data: bytes, name: str, version: str) -> Dataset:
    dataset = Dataset.from_json(data)
    if (dataset.name, dataset.version) != (name, version) or dataset.to_json() != data:
        raise IntegrityError(
            f"{dataset_key(name, version)}: wanted the document of {name}@{version}, found that of"
            f" {dataset.name}@{dataset.version}, or another form of it"
        )
    return dataset


def _verify(dataset: Dataset, signature: DatasetSignature, trusted: Trusted) -> None:
    key = trusted.get(signature.key_id)
    if key is None:
        raise IntegrityError(
            f"{dataset.key} is signed by key {signature.key_id[:64]}, trusted here: {', '.join(sorted(trusted))};"
            " sign.identities of the site names those that are"
        )
    if signature.digest != dataset.digest:
        raise IntegrityError(f"{dataset.key}: its signature is that of another document")
    key.verify(signature.signature, _PURPOSE + dataset.to_json())


def _checked_alias(blob: Blob, name: str, alias: str, trusted: Trusted) -> DatasetAlias:
    found = DatasetAlias.from_json(blob.data)
    key = trusted.get(found.key_id)
    if key is None or (found.name, found.alias) != (name, alias):
        raise IntegrityError(f"{alias_key(name, alias)}: wanted an alias signed by a trusted key, found another")
    key.verify(found.signature, _PURPOSE + replace(found, signature="").to_json())
    return found


def _no_such(store: ObjectStore, name: str, what: str, place: str) -> Exception:
    newest = sorted(list_datasets(store, name), key=lambda dataset: -dataset.modified)[:_NEWEST_SHOWN]
    works = f"its newest are {', '.join(entry.reference for entry in newest)}" if newest else "gangline data list"
    found = "no such" if newest else "no data set of that name"
    return refusal(f"{f'{place}: ' if place else ''}wanted {what} of data set {name}, found {found}; {works}")
