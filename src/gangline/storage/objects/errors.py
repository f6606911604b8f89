"""Errors of the operating system as storage errors: where, what was found, what to do."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gangline.errors import StorageError


class PermissionDenied(StorageError):
    """This credential may not do that; another one of the same store may."""


_WHAT_WORKS = {
    errno.ENOSPC: "no space is left; free some, or choose another store.url: nothing half-written is visible",
    errno.EDQUOT: "the quota is used up; free some space, or choose another store.url: nothing half-written is visible",
    errno.EROFS: "it is mounted read-only; mount it writable, or choose another store.url",
    errno.EACCES: "permission is denied; let this user write there, or choose another store.url",
    errno.EPERM: "permission is denied; let this user write there, or choose another store.url",
    errno.ENOTDIR: "a part of the key is an object already; no key may lie below another",
    errno.EISDIR: "other keys lie below this one; no key may lie below another",
    errno.EXDEV: "folder and object are on different mounts; keep a store on one file system",
    errno.ENAMETOOLONG: "the path is too long for this file system; use a store closer to its root",
}


@contextmanager
def os_failures(action: str, folder: Path) -> Iterator[None]:
    """Raise what the operating system refused as StorageError; `action` reads as `write runs/a.json`."""
    try:
        yield
    except OSError as error:
        works = _WHAT_WORKS.get(error.errno or 0, f"{error.strerror or error}; is its disk healthy and mounted?")
        raise StorageError(f"store {folder}: cannot {action}: {works}") from error
