"""Globs over `/`-joined paths: `*` and `?` match within one part, `**` matches any number of parts."""

import re
from collections.abc import Iterable
from fnmatch import fnmatchcase
from itertools import zip_longest
from pathlib import PurePosixPath

_LONGEST_PATH = 1024
"""A glob is matched with every file of a commit: its length is bounded."""


def is_inside(path: str) -> bool:
    """Is this path or glob relative, of a usable length, and does it stay where it starts?"""
    if len(path) > _LONGEST_PATH:
        return False
    parts = PurePosixPath(path).parts
    return bool(path.strip()) and not path.startswith("/") and ".." not in parts and not re.search(r"[\\\0\n]", path)


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


def may_meet(one: str, other: str) -> bool:
    """Could a path match both patterns? False is certain; True where two wildcards would have to be compared."""
    for mine, theirs in zip_longest(*([part for part in each.split("/") if part] for each in (one, other))):
        if "**" in (mine, theirs):
            return True
        if mine is None or theirs is None or not (_is_open(mine, theirs) or _fits(mine, theirs) or _fits(theirs, mine)):
            return False
    return True


def _is_open(*parts: str) -> bool:
    return all(set("*?[") & set(part) for part in parts)


def _fits(part: str, wanted: str) -> bool:
    return wanted == "**" or fnmatchcase(part, wanted)


def _skip_doubles(places: set[int], wanted: list[str]) -> set[int]:
    """`places` and all that follow when `**` matches nothing."""
    reached = set(places)
    for i in range(len(wanted)):
        if i in reached and wanted[i] == "**":
            reached.add(i + 1)
    return reached
