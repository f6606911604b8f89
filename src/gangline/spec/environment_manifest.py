"""Manifest of the environment that was made of a commit's lock: `DIGEST.json`, next to the environment in `DIGEST/`.

Packages of the commit have written into the environment, so nothing in it says what it holds, or which interpreter on
this machine it belongs to. The manifest does, where no package can write.
"""

from dataclasses import dataclass
from pathlib import Path

from gangline.errors import ConfigError, IntegrityError
from gangline.spec.codec import Document, from_json


@dataclass(frozen=True, kw_only=True, slots=True)
class EnvironmentManifest(Document):
    """What an environment holds; written when it is complete."""

    packages: dict[str, str]
    """Version by name of every installed package."""
    added: dict[str, str]
    """The part of `packages` that is not in the lock: gangline's rank runtime."""
    base: str
    """Program of the installation of Python that gangline chose for it."""
    python: str
    """Version of Python."""
    size_bytes: int
    seconds: float
    """Time that the installation took."""


def manifest_file(folder: Path) -> Path:
    """Path of the manifest of the environment in `folder`."""
    return folder.with_name(f"{folder.name}.json")


def find_manifest(folder: Path) -> EnvironmentManifest | None:
    """The manifest of the environment in `folder`; None: it is not complete, or another gangline made it."""
    try:
        return from_json(EnvironmentManifest, manifest_file(folder).read_bytes())
    except (OSError, IntegrityError):
        return None


def require_manifest(folder: Path, *, run: str = "the run") -> EnvironmentManifest:
    """The manifest of the environment in `folder`; raises ConfigError if there is none, for instance after a sweep."""
    found = find_manifest(folder)
    if found is None or not (folder / "bin" / "python").exists():
        raise ConfigError(
            f"wanted the environment of {run} at {folder}, found none: a sweep deleted it, another gangline made it, or"
            " it is on another machine; gangline run --again installs it again"
        )
    return found
