"""Files below a folder in the order of their keys, without reading what a page does not need."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from gangline.storage.folder_layout import HIDDEN, FolderLayout


def walk(layout: FolderLayout, *, prefix: str, after: str) -> Iterator[tuple[str, os.stat_result]]:
    """Keys that begin with `prefix` and sort after `after`, in byte order.

    A folder may be a link, where an administrator put it, but for those of a section: a link in one is no object.
    """
    yield from _walk(layout, layout.root, "", prefix=prefix, after=after, in_section=False)


def _walk(
    layout: FolderLayout, folder: Path, above: str, *, prefix: str, after: str, in_section: bool
) -> Iterator[tuple[str, os.stat_result]]:
    for name, is_folder in _names(folder, follow=not in_section):
        key = above + name
        if is_folder:
            if _may_hold(key, prefix, after):
                inside = in_section or layout.section_of(key) is not None
                yield from _walk(layout, folder / name, key, prefix=prefix, after=after, in_section=inside)
        elif key.startswith(prefix) and key > after:
            try:
                found = (folder / name).lstat()
            except FileNotFoundError:  # deleted since the folder was read
                continue
            if stat.S_ISREG(found.st_mode):
                yield key, found


def _names(folder: Path, *, follow: bool) -> list[tuple[str, bool]]:
    """A folder sorts as its name and `/`, as its keys do."""
    gone = FileNotFoundError if follow else (FileNotFoundError, NotADirectoryError, PermissionError)
    try:
        with os.scandir(folder) as entries:
            return sorted(
                (entry.name + "/", True) if entry.is_dir(follow_symlinks=follow) else (entry.name, False)
                for entry in entries
                if entry.name != HIDDEN
            )
    except gone:
        return []


def _may_hold(folder_key: str, prefix: str, after: str) -> bool:
    on_prefix = folder_key.startswith(prefix) or prefix.startswith(folder_key)
    return on_prefix and (folder_key > after or after.startswith(folder_key))
