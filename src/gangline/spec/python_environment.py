"""Python environment of processes that run model code: PYTHONPATH, variables of a virtualenv, what a lock's one holds.

`STARTUP` precedes the code layer in PYTHONPATH: its `sitecustomize` runs first in every Python program of a rank, and
removes that folder from the path again.

Packages of a commit have written into the environment that was made of its lock, so nothing in it says what it holds,
or which interpreter on this machine it belongs to. Its manifest does, `DIGEST.json` next to the environment in
`DIGEST/`, where no package can write.
"""

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import gangline
from gangline.errors import ConfigError, IntegrityError
from gangline.spec.codec import Document, from_json

STARTUP = Path(str(gangline.__file__)).parent / "train" / "startup"
CODE_PATH = "GANGLINE_CODE_PATH"
"""Variable of a rank that lists its folders of code, as PYTHONPATH does."""


def code_folders(code: Path, path: Sequence[str]) -> tuple[str, ...]:
    """The folder that the program is started in, and those of `project.path`, which are relative to it."""
    return (str(code), *(os.path.normpath(code / each) for each in path))


def paths_from_top(folder: str, path: Sequence[str]) -> tuple[str, ...]:
    """`path` of a program that starts in `folder` of the layer, for a process that starts at its top."""
    return (folder, *(os.path.normpath(f"{folder}/{each}") for each in path)) if folder else tuple(path)


def python_path(folders: Sequence[str], inherited: str | None) -> str:
    """PYTHONPATH of a process that runs model code."""
    return os.pathsep.join(filter(None, [str(STARTUP), *folders, inherited]))


OTHER_PYTHON = ("PYTHONPATH", "PYTHONHOME", "PYTHONUSERBASE", "VIRTUAL_ENV")
"""What leads one Python to the packages of another."""


def environ_of_interpreter(python: str, environ: Mapping[str, str]) -> dict[str, str]:
    """`environ` of a process in another Python for one in the virtual environment of `python`, a `bin/python`."""
    folder = Path(python).parent
    own = {name: value for name, value in environ.items() if name not in OTHER_PYTHON}
    return own | {"PATH": _path_with(folder, own), "VIRTUAL_ENV": str(folder.parent)}


def environ_of_this_interpreter(environ: Mapping[str, str]) -> dict[str, str]:
    """`environ` with the programs of this process's virtual environment first, even if it is not activated."""
    if sys.prefix == sys.base_prefix:
        return dict(environ)
    return {**environ, "PATH": _path_with(Path(sys.executable).parent, environ)}


def _path_with(folder: Path, environ: Mapping[str, str]) -> str:
    return os.pathsep.join([str(folder), environ.get("PATH", os.defpath)])


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
    manifest = find_manifest(folder)
    if manifest is None or not (folder / "bin" / "python").exists():
        raise ConfigError(
            f"wanted the environment of {run} at {folder}, found none: a sweep deleted it, another gangline made it, or"
            " it is on another machine; gangline run --again installs it again"
        )
    return manifest
