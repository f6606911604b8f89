"""What a file or a folder holds, as far as one can tell cheaply: its times, and a digest if it is small.

Ranks note it when a program opens one, and the driver looks again before it takes over what the program computed.
Standard library only, without pathlib, which costs every program its start.
"""

import os
import stat
from typing import NamedTuple

MOST_BYTES = 4 << 20
"""Size up to which a file has a digest; a larger one is known by its size and times."""
MOST_NAMES = 20_000
"""Entries up to which a folder has a digest of its names."""


class Contents(NamedTuple):
    """A file or folder at one moment."""

    size_bytes: int
    """Size of a file; of a folder the number of its entries, 0 above `MOST_NAMES`."""
    mtime_ns: int
    ctime_ns: int
    """Time of the last change of content, name or rights, which no program can set."""
    sha256: str = ""
    """Digest of the content, or of the sorted names in a folder; empty: too large, or changed while it was read."""


def contents_of(path: str, *, most_bytes: int = MOST_BYTES) -> "Contents | None":
    """A file, or a folder if the path ends with a slash; None: there is none, or it may not be read.

    Args:
        path: Links are followed; a pipe or a device is no file.
        most_bytes: Size of a file up to which its content is read; 0: times alone, of a folder, too.
    """
    try:
        return _folder(path, with_names=most_bytes > 0) if path.endswith("/") else _file(path, most_bytes)
    except (OSError, ValueError):
        return None


def _file(path: str, most_bytes: int) -> "Contents | None":
    if not stat.S_ISREG(os.stat(path).st_mode):
        return None  # to open a device may do something, and a pipe waits for its writer
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        before = os.fstat(handle)
        if not stat.S_ISREG(before.st_mode):
            return None
        found = Contents(before.st_size, before.st_mtime_ns, before.st_ctime_ns)
        if before.st_size > most_bytes:
            return found
        digest, after = _digest(handle, before.st_size), os.fstat(handle)
        same = found == Contents(after.st_size, after.st_mtime_ns, after.st_ctime_ns)
        return found._replace(sha256=digest) if same else found
    finally:
        os.close(handle)


def _folder(path: str, *, with_names: bool) -> Contents:
    times = os.stat(path)
    found = Contents(0, times.st_mtime_ns, times.st_ctime_ns)
    names = _names(path) if with_names else None
    if names is None:
        return found
    return found._replace(size_bytes=len(names), sha256=_sha256(b"\0".join(sorted(names))))


def _names(path: str) -> "list[bytes] | None":
    names = []
    with os.scandir(path) as entries:
        for entry in entries:
            names.append(os.fsencode(entry.name))
            if len(names) > MOST_NAMES:
                return None
    return names


def _digest(handle: int, size_bytes: int) -> str:
    pieces = []
    while size_bytes > 0 and (piece := os.read(handle, size_bytes)):
        pieces.append(piece)
        size_bytes -= len(piece)
    return _sha256(b"".join(pieces))


def _sha256(data: bytes) -> str:
    import hashlib  # 3 ms, which a program that reads nothing else does not pay

    return hashlib.sha256(data).hexdigest()
