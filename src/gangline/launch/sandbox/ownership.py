"""Whose folders are: what model code may write belongs to the user that it runs as. Links are never followed."""

import os
from contextlib import suppress
from pathlib import Path


def give(folder: Path, uid: int | None) -> None:
    """`folder` and all in it to this user and group; None: it stays this user's own."""
    if uid is None:
        return
    os.chown(folder, uid, uid, follow_symlinks=False)
    for _, folders, files, here in os.fwalk(folder, follow_symlinks=False):
        for name in (*folders, *files):
            with suppress(FileNotFoundError):  # another gang of this run deletes meanwhile
                os.chown(name, uid, uid, dir_fd=here, follow_symlinks=False)


def make_own(folder: Path, uid: int | None) -> Path:
    """A folder of this user, made where it is missing; what is in it is its own business."""
    folder.mkdir(parents=True, exist_ok=True)
    if uid is not None:
        os.chown(folder, uid, uid, follow_symlinks=False)
    return folder


def is_readable(path: Path) -> bool:
    """Any user who gets there may read a file, or a folder with all in it."""
    if not path.is_dir():
        return bool(path.stat().st_mode & 0o004)
    return path.stat().st_mode & 0o005 == 0o005 and all(map(is_readable, path.iterdir()))


def is_reachable(folder: Path) -> bool:
    """Any user may enter `folder`, or the nearest folder above it that is there."""
    try:
        return all(each.stat().st_mode & 0o001 for each in (folder, *folder.parents) if each.exists())
    except OSError:
        return False
