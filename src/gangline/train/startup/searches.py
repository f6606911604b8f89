"""Searches of a program for files of the code layer: patterns of globs, and folders that are not there.

Standard library only. A search for files that the layer leaves out finds nothing, and raises nothing.
"""

import os
from collections.abc import Callable, Iterable, Mapping
from os.path import abspath, isdir, join
from typing import Any

SEARCHES = frozenset({"glob.glob/2", "pathlib.Path.glob", "pathlib.Path.rglob", "os.listdir", "os.scandir"})
_MOST = 20


class Searches:
    """Reports the searches of one process in the layer, whose folders end with a slash, once each."""

    def __init__(self, code: Iterable[str], write: Callable[[Mapping[str, Any]], None]) -> None:
        self._code, self._write = tuple(code), write
        self._seen: set[str] = set()

    def looked(self, event: str, arguments: tuple[Any, ...]) -> None:
        """A folder is about to be listed, or files that match a pattern are."""
        path = abspath(_pattern(event, arguments))
        folder = next((each for each in self._code if path.startswith(each)), None)
        if folder is None or path in self._seen or len(self._seen) >= _MOST:
            return
        is_listing = event.startswith("os.")
        if is_listing and (isdir(path) or any(each.startswith(f"{path}/") for each in self._seen)):
            return  # it has what is there, or a pattern lists it
        self._seen.add(path)
        self._write({"event": "search", "pattern": path[len(folder) :][:1000]})


def _pattern(event: str, arguments: tuple[Any, ...]) -> str:
    match event, arguments:
        case "glob.glob/2", (pattern, _, root, _):
            return join(os.fsdecode(root or ""), os.fsdecode(pattern))
        case "pathlib.Path.glob", (folder, pattern):
            return join(str(folder), pattern)
        case "pathlib.Path.rglob", (folder, pattern):
            return join(str(folder), "**", pattern)
        case _, (folder,) if isinstance(folder, (str, bytes, os.PathLike)):
            return os.fsdecode(folder)
    return "/"
