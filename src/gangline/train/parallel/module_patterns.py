"""Patterns that name modules of a model: `layers.*.wo`, matched part by part."""

import fnmatch


def matches(name: str, pattern: str) -> bool:
    """A `*` stands for one part of the name, or for some of its letters."""
    parts, wanted = name.split("."), pattern.split(".")
    return len(parts) == len(wanted) and all(map(fnmatch.fnmatchcase, parts, wanted))


def join(*parts: str) -> str:
    """Name of a module inside another; the whole model has the empty name."""
    return ".".join(each for each in parts if each)
