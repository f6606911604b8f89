"""Files below a folder that others may write to: reached step by step, and no symbolic link on the way is followed.

A path is looked up again at every call. A process that may write in one of its folders can put a link in the place of
the next one, and the program that follows it reads, overwrites or deletes a file of its own that was never meant.
"""

import errno
import os
import shutil
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_PLAIN = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
"""A link is refused, and a pipe without a writer does not block."""
_NOT_PLAIN = (errno.ELOOP, errno.ENXIO, errno.EISDIR)


@contextmanager
def pinned_folder(root: Path, parts: Sequence[str], *, make: bool = False) -> Iterator[Path]:
    """The folder `parts` below `root`, by a path that names this very folder while the block runs.

    Args:
        root: Itself out of the others' reach.
        parts: One name each.
        make: Missing folders are made, of the owner of `root`.

    Raises:
        FileNotFoundError, NotADirectoryError: It is not there, or a link is in its place.
    """
    handle = _open_folder(root, parts, make=make)
    try:
        yield Path(f"/proc/self/fd/{handle}")
    finally:
        os.close(handle)


def open_plain(path: Path, flags: int = os.O_RDONLY) -> int:
    """Descriptor of a regular file whose folder is held, or trusted.

    Raises:
        FileNotFoundError: There is none: nothing, or a link, folder, pipe or device.
    """
    return _plain(path, flags, 0o666, None)


def kind_of(mode: int) -> str:
    """`a link`, `a folder`, ... of what is no regular file, by its mode."""
    kinds = (
        (stat.S_ISLNK, "a link"),
        (stat.S_ISDIR, "a folder"),
        (stat.S_ISFIFO, "a pipe"),
        (stat.S_ISSOCK, "a socket"),
    )
    return next((kind for is_kind, kind in kinds if is_kind(mode)), "a device")


def read_below(root: Path, path: Path, *, start: int = 0) -> bytes | None:
    """A file below `root` from byte `start` on; None if no regular file is there, or a link is on the way to it."""
    *parents, name = path.relative_to(root).parts
    try:
        folder = _open_folder(root, parents, make=False)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        handle = _plain(name, os.O_RDONLY, 0, folder)
    except FileNotFoundError:
        return None
    finally:
        os.close(folder)
    with os.fdopen(handle, "rb") as file:
        file.seek(start)
        return file.read()


def delete_tree(folder: Path) -> None:
    """Delete a folder that others wrote, whatever permissions they gave to folders in it; a missing one is no error."""
    with suppress(FileNotFoundError):
        for _, names, _, handle in os.fwalk(folder, follow_symlinks=False):
            for name in names:
                if stat.S_ISDIR(os.stat(name, dir_fd=handle, follow_symlinks=False).st_mode):
                    os.chmod(name, 0o700, dir_fd=handle)
        shutil.rmtree(folder)


def _open_folder(root: Path, parts: Sequence[str], *, make: bool) -> int:
    handle = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    owner = os.fstat(handle)
    for part in parts:
        try:
            if make:
                _make(part, handle, owner)
            below = os.open(part, _FOLDER, dir_fd=handle)
        finally:
            os.close(handle)
        handle = below
    return handle


def _make(name: str, folder: int, owner: os.stat_result) -> None:
    with suppress(FileExistsError):
        os.mkdir(name, dir_fd=folder)
        os.fsync(folder)
        if os.geteuid() == 0:
            os.chown(name, owner.st_uid, owner.st_gid, dir_fd=folder, follow_symlinks=False)


def _plain(path: Path | str, flags: int, mode: int, folder: int | None) -> int:
    try:
        handle = os.open(path, flags | _PLAIN, mode, dir_fd=folder)
    except OSError as error:
        if error.errno in _NOT_PLAIN:
            raise FileNotFoundError(errno.ENOENT, "no regular file", str(path)) from error
        raise
    if stat.S_ISREG(os.fstat(handle).st_mode):
        return handle
    os.close(handle)
    raise FileNotFoundError(errno.ENOENT, "no regular file", str(path))
