"""Versions and aliases as stored below `models/`: reading, listing, names and owners."""

from dataclasses import dataclass
from hashlib import sha256

from gangline.errors import IntegrityError, StorageError, UsageError
from gangline.registry.types import Alias, Version, alias_key, owner_key, version_key
from gangline.spec.codec import canonical, from_json
from gangline.spec.config.grammar import SLUG
from gangline.storage.objects.protocol import ObjectStore, get_bounded, list_all

_MOST_OWNER_BYTES = 1024


@dataclass(frozen=True, slots=True)
class _Owner:
    """`models/<model>/project.json`."""

    project: str


def list_versions(store: ObjectStore, model: str) -> tuple[Version, ...]:
    """Every version of `model`, oldest first."""
    found = (read_version(store, model, number) for number in version_numbers(store, model))
    return tuple(version for version in found if version is not None)


def version_numbers(store: ObjectStore, model: str) -> tuple[int, ...]:
    """Numbers that are taken in the store, sorted."""
    check_name("a model", model)
    prefix = f"models/{model}/"
    names = (entry.key.removeprefix(prefix).removesuffix(".json") for entry in list_all(store, prefix))
    return tuple(sorted(int(name) for name in names if name.isdecimal()))


def read_version(store: ObjectStore, model: str, version: int) -> Version | None:
    """One version; None where there is none.

    Raises:
        IntegrityError: What lies there is not that version.
    """
    check_name("a model", model)
    blob = store.get(version_key(model, version))
    if blob is None:
        return None
    found = Version.from_json(blob.data)
    if (found.model, found.version) != (model, version):
        raise IntegrityError(f"{version_key(model, version)} calls itself {found.model} {found.version}")
    return found


def require_owner(store: ObjectStore, model: str, project: str) -> None:
    """A model belongs to the project that published it first, and one called like a project to that project.

    A name that has no owner yet is `project`'s from here on.

    Raises:
        IntegrityError: It belongs to another project.
    """
    owner = _owner(store, model, project)
    if owner != project:
        raise IntegrityError(
            f"publish.model: the model {model} belongs to the project {owner}, this is {project}; choose another name"
        )


def _owner(store: ObjectStore, model: str, project: str) -> str:
    """Project that `model` belongs to; with no owner yet, `project` becomes it."""
    key = owner_key(model)
    if store.head(key) is None:
        versions = version_numbers(store, model)
        first = read_version(store, model, versions[0]) if versions else None
        named_so = model != project and store.list(f"runs/{model}/", "", 1)
        owner = first.project if first else model if named_so else project
        store.put_if_absent(key, canonical({"project": owner}))
    blob = get_bounded(store, key, most_bytes=_MOST_OWNER_BYTES)
    if blob is None:
        raise StorageError(f"{store.url}: {key} was there and is gone; does something clear this store?")
    return from_json(_Owner, blob.data).project


def read_alias(store: ObjectStore, model: str, alias: str) -> Alias | None:
    """Where `alias` points; None where nothing was promoted."""
    check_name("a model", model)
    check_name("an alias", alias)
    blob = store.get(alias_key(model, alias))
    return Alias.from_json(blob.data) if blob else None


def version_digest(version: Version) -> str:
    """SHA-256 of the version's file: what the git tag and an alias hold."""
    return sha256(version.to_json()).hexdigest()


def check_name(what: str, name: str) -> None:
    """Refuse what could not stand in a key."""
    if not SLUG.fullmatch(name):
        raise UsageError(f"wanted the name of {what} like bytegpt or production, found {name!r}; use a-z, 0-9 and -")
