"""Versions and aliases as stored below `models/`: types, keys, reading, listing, owners of names."""

from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

from gangline.errors import IntegrityError, StorageError, UsageError
from gangline.registry.model_files import ModelFile
from gangline.registry.project_owner import claim_key
from gangline.spec.codec import Document, canonical, from_json
from gangline.spec.config.grammar import SLUG
from gangline.storage.objects.protocol import ObjectStore, get_bounded, list_all

_MAX_OWNER_BYTES = 1024


@dataclass(frozen=True, kw_only=True, slots=True)
class Version(Document):
    """`models/<model>/<version>.json`: written once, never changed; the git tag holds its digest."""

    schema: int = 1
    model: str
    version: int
    run: str
    project: str
    commit: str
    record: str
    """Store prefix of the run."""
    checkpoint: str
    """Store prefix of the checkpoint; of a program the folder of its save, or the key of its list of outputs."""
    plan: str
    """Digest of the plan."""
    inputs: dict[str, Any] = field(default_factory=dict)
    """Digests of line, code, environment and data; seeds."""
    weights: str
    """Digest over path and SHA-256 of the weight files: equal weights of one run are one version."""
    files: tuple[ModelFile, ...]
    metrics: dict[str, dict[str, Any]] = field(default_factory=dict)
    key_id: str
    """Id of the key that signed the folder."""
    created: str
    """UTC time at which the run was created, so that a retry writes the same bytes."""

    @property
    def key(self) -> str:
        return version_key(self.model, self.version)

    @property
    def of_program(self) -> bool:
        """The weights are files that a program wrote, in formats of its own."""
        return "/checkpoints/" not in self.checkpoint

    @property
    def origin_key(self) -> str:
        """Key of the signed manifest, or of the list of outputs, that the weights come from."""
        return self.checkpoint if self.checkpoint.endswith(".json") else f"{self.checkpoint}/manifest.json"


@dataclass(frozen=True, kw_only=True, slots=True)
class Alias(Document):
    """`models/<model>/aliases/<alias>.json`: the version that an alias names; changed by compare-and-set only."""

    schema: int = 1
    model: str
    alias: str
    version: int
    version_digest: str
    """SHA-256 of `<version>.json`."""
    generation: int
    """Incremented by each promotion; two promotions never share one."""
    previous: int | None = None
    who: str
    because: str
    time: str
    nonce: str
    """Random; after a lost answer the alias is read back and compared with it."""
    key_id: str
    signature: str = ""
    """Elliptic-curve signature, base64, over this document with an empty signature."""

    @property
    def key(self) -> str:
        return alias_key(self.model, self.alias)


@dataclass(frozen=True, slots=True)
class _Owner:
    """`models/<model>/project.json`."""

    project: str


def version_key(model: str, version: int) -> str:
    """Store key of a version."""
    return f"models/{model}/{version}.json"


def owner_key(model: str) -> str:
    """Store key of the project that a model belongs to."""
    return f"models/{model}/project.json"


def alias_key(model: str, alias: str) -> str:
    """Store key of an alias."""
    return f"models/{model}/aliases/{alias}.json"


def tag_name(model: str, version: int) -> str:
    """Name of the git tag of a version."""
    return f"model/{model}/v{version}"


def list_versions(store: ObjectStore, model: str) -> tuple[Version, ...]:
    """Every version of `model`, oldest first."""
    versions = (read_version(store, model, number) for number in version_numbers(store, model))
    return tuple(version for version in versions if version is not None)


def version_numbers(store: ObjectStore, model: str) -> tuple[int, ...]:
    """Version numbers in the store, sorted."""
    check_name("a model", model)
    prefix = f"models/{model}/"
    names = (entry.key.removeprefix(prefix).removesuffix(".json") for entry in list_all(store, prefix))
    return tuple(sorted(int(name) for name in names if name.isdecimal()))


def read_version(store: ObjectStore, model: str, version: int) -> Version | None:
    """One version; None where there is none.

    Raises:
        IntegrityError: The document names another model or version than its key.
    """
    check_name("a model", model)
    blob = store.get(version_key(model, version))
    if blob is None:
        return None
    found = Version.from_json(blob.data)
    if (found.model, found.version) != (model, version):
        raise IntegrityError(f"{version_key(model, version)} names itself {found.model} {found.version}")
    return found


def require_owner(store: ObjectStore, model: str, project: str) -> None:
    """Check that `project` owns the name `model`; a name without an owner becomes `project`'s.

    The project that published a model first owns it. A model named like a project belongs to that project.

    Raises:
        IntegrityError: Another project owns it.
    """
    key = owner_key(model)
    if store.head(key) is None:
        store.put_if_absent(key, canonical({"project": find_owner(store, model, project)}))
        if store.head(key) is None:
            raise StorageError(
                f"{store.url}: {key} was just written and is missing; does another program clear this store?"
            )
    check_owner(store, model, project)


def check_owner(store: ObjectStore, model: str, project: str) -> None:
    """Raises IntegrityError as `require_owner`, and writes nothing."""
    owner = find_owner(store, model, project)
    if owner != project:
        raise IntegrityError(
            f"publish.model: the model {model} belongs to the project {owner}, this is {project}; choose another name"
        )


def find_owner(store: ObjectStore, model: str, project: str) -> str:
    """The owner of a model; without one the project of its first version, the project of that name, or `project`."""
    if (owner := read_owner(store, model)) is not None:
        return owner
    versions = version_numbers(store, model)
    first = read_version(store, model, versions[0]) if versions else None
    is_project = store.head(claim_key(model)) is not None or bool(store.list(f"runs/{model}/", "", 1))
    return first.project if first else model if is_project else project


def read_owner(store: ObjectStore, model: str) -> str | None:
    """The project that a model belongs to; None for a model without a version."""
    blob = get_bounded(store, owner_key(model), most_bytes=_MAX_OWNER_BYTES)
    return None if blob is None else from_json(_Owner, blob.data).project


def read_alias(store: ObjectStore, model: str, alias: str) -> Alias | None:
    """The alias; None where it was never promoted."""
    check_name("a model", model)
    check_name("an alias", alias)
    blob = store.get(alias_key(model, alias))
    return Alias.from_json(blob.data) if blob else None


def version_digest(version: Version) -> str:
    """SHA-256 of the version's file, as the git tag and an alias hold it."""
    return sha256(version.to_json()).hexdigest()


def check_name(what: str, name: str) -> None:
    """Raises UsageError for a name that cannot be part of a key."""
    if not SLUG.fullmatch(name):
        raise UsageError(f"wanted the name of {what} like bytegpt or production, found {name!r}; use a-z, 0-9 and -")
