"""Globs over `/`-joined paths: `*` and `?` match within one part, `**` matches any number of parts."""

from collections.abc import Iterable
from fnmatch import fnmatchcase


def matches(path: str, pattern: str) -> bool:
    """Does `pattern` describe all of `path`? Time grows with the product of their lengths, whatever the pattern."""
    wanted = [part for part in pattern.split("/") if part]
    places = _skip_doubles({0}, wanted)
    for part in path.split("/"):
        stepped = {i + (wanted[i] != "**") for i in places if i < len(wanted) and _fits(part, wanted[i])}
        places = _skip_doubles(stepped, wanted)
    return len(wanted) in places


def any_matches(path: str, patterns: Iterable[str]) -> bool:
    """Does `path` match one of `patterns`?"""
    return any(matches(path, pattern) for pattern in patterns)


def _fits(part: str, wanted: str) -> bool:
    return wanted == "**" or fnmatchcase(part, wanted)


def _skip_doubles(places: set[int], wanted: list[str]) -> set[int]:
    """`places` and all that follow when `**` matches nothing."""
    reached = set(places)
    for i in range(len(wanted)):
        if i in reached and wanted[i] == "**":
            reached.add(i + 1)
    return reached
