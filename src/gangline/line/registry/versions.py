"""Versions and aliases as they lie under `models/` in the store; nothing here judges them."""

from hashlib import sha256

from gangline.errors import IntegrityError, UsageError
from gangline.line.registry.types import Alias, Version, alias_key, version_key
from gangline.spec.grammar import SLUG
from gangline.storage.protocol import ObjectStore, list_all


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


def read_alias(store: ObjectStore, model: str, alias: str) -> Alias | None:
    """Where `alias` points; None where nothing was promoted."""
    check_name("a model", model)
    check_name("an alias", alias)
    blob = store.get(alias_key(model, alias))
    return Alias.from_json(blob.data) if blob else None


def digest_of(version: Version) -> str:
    """SHA-256 of the version's file: what the git tag and an alias hold."""
    return sha256(version.to_json()).hexdigest()


def check_name(what: str, name: str) -> None:
    """Refuse what could not stand in a key."""
    if not SLUG.fullmatch(name):
        raise UsageError(f"wanted the name of {what} like bytegpt or production, found {name!r}; use a-z, 0-9 and -")
