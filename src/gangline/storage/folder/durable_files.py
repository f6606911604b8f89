"""Durable files: complete and on the disk, or not there; the few steps that durability on POSIX needs."""

import errno
import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

_COARSE_NS = 2_000_000_000
"""Coarsest time stamp of a file system in use (FAT: 2 s)."""
_TRIES = 20


def write_synced(path: Path, data: bytes) -> None:
    """Create `path` with `data`, on the disk when it returns; no half of it stays behind when it raises."""
    try:
        with path.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def sync_folder(folder: Path) -> None:
    """Sync the folder to disk; a folder that a concurrent delete removed is ignored."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except FileNotFoundError:
        return
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def replace_file(path: Path, data: bytes, *, durable: bool) -> None:
    """Replace `path` by rename: a reader sees the old content or the new; `durable`: on the disk when it returns."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    with draft.open("wb") as file:
        file.write(data)
        if durable:
            file.flush()
            os.fsync(file.fileno())
    draft.replace(path)
    if durable:
        sync_folder(path.parent)


def make_folders(folder: Path) -> None:
    """`mkdir -p`, with every new name on the disk; a file in the way raises NotADirectoryError."""
    if folder.is_dir():
        return
    make_folders(folder.parent)
    try:
        folder.mkdir()
    except FileExistsError as error:
        if _is_in_the_way(folder):
            raise NotADirectoryError(errno.ENOTDIR, "Not a directory", str(folder)) from error
        make_folders(folder)  # if another made it, and one more took it away
    sync_folder(folder.parent)


def _is_in_the_way(place: Path) -> bool:
    """The path exists and is not a folder."""
    try:
        return not (stat.S_ISDIR(place.lstat().st_mode) or place.is_dir())
    except FileNotFoundError:
        return False


def publish(staged: Path, target: Path, *, replace: bool) -> bool:
    """Give a synced file its name in one step; False: `target` is there and was not to be replaced."""
    return publish_at(staged, lambda: _made(target), replace=replace)


def publish_at(staged: Path, place: Callable[[], AbstractContextManager[Path]], *, replace: bool) -> bool:
    """Publish a staged file under the name that `place` gives once its folder is there; see `publish`.

    A folder that a concurrent delete just pruned is made again.
    """
    for tries_left in reversed(range(_TRIES)):
        try:
            with place() as target:
                is_ours = _name(staged, target, replace=replace)
                sync_folder(target.parent)
                return is_ours
        except FileNotFoundError:
            if not tries_left or not staged.exists():
                raise
    raise AssertionError("the last try returns or raises")


@contextmanager
def _made(target: Path) -> Iterator[Path]:
    make_folders(target.parent)
    yield target


def _name(staged: Path, target: Path, *, replace: bool) -> bool:
    if replace:
        staged.replace(target)
        return True
    try:
        target.hardlink_to(staged)
    except FileExistsError:
        return False
    staged.unlink()
    return True


def stamp_after(path: Path, previous_ns: int) -> None:
    """Set a modification time later than `previous_ns`, as near to now as the file system can tell."""
    for at_ns in (max(time.time_ns(), previous_ns + 1), previous_ns + _COARSE_NS):
        os.utime(path, ns=(at_ns, at_ns), follow_symlinks=False)
        if path.lstat().st_mtime_ns > previous_ns:
            return
    raise OSError(f"{path}: time stamps do not advance on this file system")


def prune(folder: Path, root: Path) -> None:
    """Remove `folder` and its parents below `root` as long as they are empty."""
    while folder != root:
        try:
            folder.rmdir()
        except OSError:  # not empty, or gone: either ends the climb
            return
        folder = folder.parent
