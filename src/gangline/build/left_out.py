"""Tracked files that a code layer leaves out, and which to leave out of one that is too large. Pure."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from gangline.units import format_bytes

_MOST_GLOBS = 3
_BULK = 0.75
"""Share of a folder that one of its entries has if that entry is named instead of the folder."""


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Tracked files of the line's folder that are not in its code layer, but for line.toml."""

    paths: tuple[str, ...] = ()
    """Relative to the line's folder; a submodule without files has its own path."""
    size_bytes: int = 0
    keys: tuple[str, ...] = ()
    """Keys of the line that leave them out."""

    def __str__(self) -> str:
        """`2 tracked files are left out by project.exclude, 34 B`; empty where there are none."""
        if not self.paths:
            return ""
        what = "1 tracked file is" if len(self.paths) == 1 else f"{len(self.paths)} tracked files are"
        by = f" by {' and '.join(self.keys)}" if self.keys else ""
        return f"{what} left out{by}, {format_bytes(self.size_bytes)}"


def heaviest_globs(weights: Mapping[str, int], *, most: int) -> dict[str, int]:
    """Globs of files or folders, three at most, with their weights; without them little more than `most` is left."""
    found: dict[str, int] = {}
    left = dict(weights)
    while sum(left.values()) > most and len(found) < _MOST_GLOBS:
        place = _heaviest(left)
        below = {path: weight for path, weight in left.items() if path == place or path.startswith(f"{place}/")}
        found[place if place in below else f"{place}/**"] = sum(below.values())
        left = {path: weight for path, weight in left.items() if path not in below}
    return found


def _heaviest(weights: Mapping[str, int]) -> str:
    """The file, or the deepest folder, that has most of the weight below each folder above it."""
    place, total = "", 0.0
    while True:
        entries = Counter[str]()
        for path, weight in weights.items():
            if path.startswith(place):
                entries[place + path[len(place) :].partition("/")[0]] += weight
        entry, weight = entries.most_common(1)[0]
        if weight < total * _BULK:
            return place.removesuffix("/")
        if entry in weights:
            return entry
        place, total = f"{entry}/", weight
