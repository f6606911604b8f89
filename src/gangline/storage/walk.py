"""Files below a folder in the order of their keys, without reading what a page does not need."""

import os
from collections.abc import Iterator
from pathlib import Path


def walk(root: Path, *, prefix: str, after: str, hidden: str) -> Iterator[tuple[str, os.stat_result]]:
    """Keys that begin with `prefix` and sort after `after`, in byte order; `hidden` is left out at the top."""
    yield from _walk(root, "", prefix, after, hidden)


def _walk(folder: Path, above: str, prefix: str, after: str, hidden: str) -> Iterator[tuple[str, os.stat_result]]:
    for name, is_folder in _names(folder):
        key = above + name
        if not above and name.rstrip("/") == hidden:
            continue
        if is_folder:
            if _may_hold(key, prefix, after):
                yield from _walk(folder / name, key, prefix, after, hidden)
        elif key.startswith(prefix) and key > after:
            try:
                found = (folder / name).stat()
            except FileNotFoundError:  # deleted since the folder was read
                continue
            yield key, found


def _names(folder: Path) -> list[tuple[str, bool]]:
    """A folder sorts as its name and `/`, as its keys do."""
    try:
        with os.scandir(folder) as entries:
            return sorted((entry.name + "/", True) if entry.is_dir() else (entry.name, False) for entry in entries)
    except FileNotFoundError:
        return []


def _may_hold(folder_key: str, prefix: str, after: str) -> bool:
    on_prefix = folder_key.startswith(prefix) or prefix.startswith(folder_key)
    return on_prefix and (folder_key > after or after.startswith(folder_key))
