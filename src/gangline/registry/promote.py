"""Promotion: sets an alias to a version after a check of the whole version.

An alias changes by compare-and-set only, so of several promoters one wins each generation and the others get an error.
Its file is signed, so who promoted what, and why, cannot be changed without the key. To roll back, promote an older
version.
"""

import getpass
import secrets
import socket
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from gangline.errors import GateError, IntegrityError, StorageError, UsageError
from gangline.registry.version_checks import ReadRecord, VersionEvidence, check_version
from gangline.registry.versions import Alias, Version, alias_key, check_name, read_version, version_digest, version_key
from gangline.signing.keys import PublicKey, SigningKey, signing_key, trusted_keys
from gangline.spec.config.site import Site
from gangline.storage.objects.protocol import Etag, ObjectStore
from gangline.storage.probe import probe
from gangline.units import now

MAX_BECAUSE = 500


def promote(
    model: str,
    version: int,
    alias: str,
    *,
    store: ObjectStore,
    repo: Path | None,
    site: Site,
    environ: Mapping[str, str],
    because: str,
    read_record: ReadRecord,
    who: str | None = None,
) -> Alias:
    """Set `alias` of `model` to `version`; writes nothing where it already names that version.

    Raises:
        UsageError: No such version, or no reason.
        IntegrityError: A check failed; the message has every failed check.
        GateError: Another promotion changed the alias meanwhile.
        StorageError: The store does not support conditional writes.
    """
    if not because.strip():
        raise UsageError("wanted a reason for the promotion, found none; say --because '...'")
    check_name("an alias", alias)
    wanted = _read(store, model, version)
    place, current, etag = _read_alias(store, model, alias)
    check_conditional_writes(store)
    key = signing_key(site, environ)
    evidence = VersionEvidence(
        store=store, repo=repo, keys=trusted_keys(site, environ), read_record=read_record, named=site.projects
    )
    _check_parts(wanted, evidence)
    if current and (current.version, current.version_digest) == (version, version_digest(wanted)):
        return current
    next_alias = Alias(
        model=model, alias=alias, version=version, version_digest=version_digest(wanted),
        generation=current.generation + 1 if current else 1, previous=current.version if current else None,
        who=who or f"{getpass.getuser()}@{socket.gethostname()}", because=because.strip()[:MAX_BECAUSE], time=now(),
        nonce=secrets.token_hex(8), key_id=key.key_id,
    )  # fmt: skip
    return _write_alias(store, place, _sign_alias(next_alias, key), etag)


def check_conditional_writes(store: ObjectStore) -> str:
    """Raises StorageError where the store ignores conditions, so that two promoters could both win."""
    store_probe = probe(store)
    if not store_probe.conditional_writes:
        failed = next((check for check in store_probe.checks if not check.passed), None)
        why = f": {failed.name}: {failed.reason}" if failed else ""
        raise StorageError(f"{store.url} ignores conditional writes{why}; promote in a store that supports them")
    return "the store supports conditional writes"


def _sign_alias(alias: Alias, key: SigningKey) -> Alias:
    """`alias` signed by `key`."""
    return replace(alias, signature=key.sign(replace(alias, signature="").to_json()))


def verify_alias(alias: Alias, keys: Mapping[str, PublicKey]) -> str:
    """One sentence on who set the alias and why; raises IntegrityError unless a trusted key signed it."""
    key = keys.get(alias.key_id)
    if key is None:
        raise IntegrityError(f"alias {alias.alias} is signed by key {alias.key_id}, which is not trusted here")
    key.verify(alias.signature, replace(alias, signature="").to_json())
    return f"generation {alias.generation}, by {alias.who}: {alias.because}; signed by key {alias.key_id}"


def _read(store: ObjectStore, model: str, version: int) -> Version:
    found = read_version(store, model, version)
    if found is None:
        raise UsageError(f"there is no {version_key(model, version)} in {store.url}; gangline list shows runs")
    return found


def _read_alias(store: ObjectStore, model: str, alias: str) -> tuple[str, Alias | None, Etag | None]:
    place = alias_key(model, alias)
    blob = store.get(place)
    return (place, Alias.from_json(blob.data), blob.etag) if blob else (place, None, None)


def _check_parts(version: Version, evidence: VersionEvidence) -> None:
    failed = [result for result in check_version(version, evidence) if not result.ok]
    if failed:
        reasons = "; ".join(f"{result.name}: {result.text}" for result in failed)
        raise IntegrityError(f"{version.model} {version.version} is not promoted: {reasons}")


def _write_alias(store: ObjectStore, place: str, alias: Alias, etag: Etag | None) -> Alias:
    """Write `alias` unless it changed since `etag`; after a lost answer it is read back."""
    data = alias.to_json()
    try:
        moved = store.put_if_absent(place, data) if etag is None else store.compare_and_set(place, data, etag)
    except StorageError:
        blob = store.get(place)
        if blob is None or blob.etag == etag:
            raise
        moved = blob.etag if blob.data == data else None
    if moved is not None:
        return alias
    blob = store.get(place)
    current = Alias.from_json(blob.data) if blob else None
    where = f"{current.version} (generation {current.generation}, {current.who})" if current else "no version"
    raise GateError(
        f"another promotion came first: {alias.model}@{alias.alias} is set to {where}, not to {alias.version};"
        " look at it, then promote again"
    )
