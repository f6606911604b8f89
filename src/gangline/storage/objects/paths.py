"""Relative paths under which files are stored, and written again on other machines: which are plain, which clash."""

import os
import re
import tempfile
import unicodedata
from collections.abc import Iterable
from pathlib import Path

from gangline.errors import IntegrityError
from gangline.spec.config.grammar import is_git_name

MAX_PATH_BYTES = 900
_NOT_PLAIN = re.compile(r"[\x00-\x1f\x7f\\]")
_NO_NAMES = frozenset({"", ".", ".."})
"""What no part of a path may be: an empty one is a doubled, leading or trailing slash."""


def check_path(path: str) -> None:
    """Raises IntegrityError where `path` is not plain, relative, and free of `..`."""
    if _NOT_PLAIN.search(path) or not _NO_NAMES.isdisjoint(path.split("/")) or len(path.encode()) > MAX_PATH_BYTES:
        raise IntegrityError(f"wanted a plain relative path, found {path!r}")


def is_of_git(path: str) -> bool:
    """Whether `path` is a git folder or leads into one, on any file system: git obeys the files in it."""
    return any(map(is_git_name, path.split("/")))


def check_new_path(path: str) -> None:
    """Raises IntegrityError as `check_path`, and where `path` is of a git folder."""
    check_path(path)
    if is_of_git(path):
        raise IntegrityError(f"wanted a path outside of git folders, found {path!r}")


def folded(path: str) -> str:
    """`path` as file systems that ignore letter case and forms of Unicode look it up."""
    return unicodedata.normalize("NFC", path).casefold()


def clash(paths: Iterable[str], folder: Path) -> tuple[str, str] | None:
    """Two of `paths`, or of their folders, that are one on the file system of `folder`; None where it holds them all.

    Raises:
        OSError: `folder` cannot be written to.
    """
    first: dict[str, str] = {}
    every: set[str] = set()
    for path in paths:
        rest = path
        while rest and rest not in every:
            every.add(rest)
            rest = rest.rpartition("/")[0]
    for path in sorted(every):
        other = first.setdefault(folded(path), path)
        if other != path and _is_one(other, path, folder):
            return other, path
    return None


def _is_one(one: str, other: str, folder: Path) -> bool:
    name, same = next((a, b) for a, b in zip(one.split("/"), other.split("/"), strict=True) if a != b)
    with tempfile.TemporaryDirectory(prefix=".names-", dir=folder) as place:
        (Path(place) / name).touch()
        return os.path.lexists(Path(place) / same)
