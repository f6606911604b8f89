"""The lock of a repository's packages, and the command that makes one where it has none. Pure."""

import re
import tomllib
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from gangline.errors import ConfigError
from gangline.init.console_scripts import PYPROJECT
from gangline.spec.config.lock import EXPORTS, check_lock, kind_of

CONDA = ("environment.yml", "environment.yaml")
_TEXT = re.compile(r"[^/]+\.(txt|lock|in)")
_REQUIREMENTS = re.compile(r"[^/]*requirements[^/]*\.(txt|in)")
_HASH = b"--hash=sha256:"
_NEW = "requirements.lock"


@dataclass(frozen=True, kw_only=True, slots=True)
class LockGuess:
    """The lock, and what is to be said of those that were not taken."""

    path: str | None
    notes: tuple[str, ...]


def guess_lock(
    files: Mapping[str, bytes], *, tracked: Collection[str], untracked: Mapping[str, bytes] | None = None
) -> LockGuess:
    """The first lock at the top that a run can install.

    Args:
        files: Tracked files that were read.
        tracked: Paths of all tracked files.
        untracked: Files at the top that git neither tracks nor ignores.
    """
    notes: list[str] = []
    for path in filter(is_lock_name, sorted(files)):
        if not _is_lock(path, files[path]):
            continue
        try:
            check_lock(files[path], file=path)
        except ConfigError as error:
            notes.append(f"no run can install {path}: {error}")
            continue
        return LockGuess(path=path, notes=tuple(_extras(path, files)))
    waiting = [path for path, data in (untracked or {}).items() if is_lock_name(path) and _is_lock(path, data)]
    if waiting:
        notes.append(f'{waiting[0]} is not committed: git add {waiting[0]}, and in [env] lock = "{waiting[0]}"')
    elif not notes:
        notes.append(f"no lock of packages: {_command(files, tracked)}")
    return LockGuess(path=None, notes=tuple(notes))


def is_lock_name(path: str) -> bool:
    """Whether a file at the top may be a lock, by its name."""
    return kind_of(path) != "requirements" or (bool(_TEXT.fullmatch(path)) and path not in EXPORTS)


def _is_lock(path: str, data: bytes) -> bool:
    return "/" not in path and (kind_of(path) != "requirements" or _HASH in data)


def _extras(path: str, files: Mapping[str, bytes]) -> Iterator[str]:
    """Note on extras of which only one can be installed, so that none is proposed."""
    if kind_of(path) != "uv":
        return
    uv = _toml(files.get(PYPROJECT, b"")).get("tool", {})
    sets = uv.get("uv", {}).get("conflicts", []) if isinstance(uv, dict) and isinstance(uv.get("uv"), dict) else []
    for each in sets if isinstance(sets, list) else ():
        names = [str(item["extra"]) for item in each if isinstance(item, dict) and "extra" in item]
        if len(names) > 1:
            yield (
                f"{path} has packages of {' or '.join(names)}, which exclude each other: in [env]"
                f' extras = ["{names[0]}"] takes one, and none is taken without it'
            )


def _command(files: Mapping[str, bytes], tracked: Collection[str]) -> str:
    """The whole command that makes a lock of what the repository says of its packages."""
    top = [path for path in sorted(tracked) if "/" not in path]
    compiles, then = "uv pip compile --generate-hashes", f'-o {_NEW}, git add {_NEW}, and in [env] lock = "{_NEW}"'
    if other := next((path for path in top if path in EXPORTS), None):
        writes = EXPORTS[other].replace("writes that", f"writes one of {other}")
        return f'{writes}; git add it, and in [env] lock = "requirements.txt"'
    listed = sorted(filter(_REQUIREMENTS.fullmatch, top), key=lambda path: ("train" not in path, len(path), path))
    if listed:
        return f"{compiles} {listed[0]} {then}"
    project = _toml(files.get(PYPROJECT, b""))
    if "project" in project or "poetry" in project.get("tool", {}):
        return f"{compiles} {PYPROJECT} {then}"
    if "setup.py" in top:
        return f"{compiles} setup.py {then}"
    if conda := next((path for path in CONDA if path in top), None):
        match = re.search(rb"^name:\s*([\w.-]+)", files.get(conda, b""), re.MULTILINE)
        name = match[1].decode() if match else "NAME"
        return f"of conda's {conda}, conda run -n {name} pip list --format freeze | {compiles} - {then}"
    return f"list what it imports in requirements.in, then {compiles} requirements.in {then}"


def _toml(data: bytes) -> dict[str, Any]:
    with suppress(tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError):
        return tomllib.loads(data.decode())
    return {}
