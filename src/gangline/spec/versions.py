"""Pythons and torches that gangline was run with; `make test-versions` goes through all pairs of them."""

PYTHONS = ("3.11", "3.12", "3.13")
TORCHES = ("2.11", "2.13", "2.15")
"""The oldest that it works with, one between, and the one of the lock."""


def is_seen(version: str, seen: tuple[str, ...]) -> bool:
    """Is `version`, as `3.12.1` or `2.11.0+cu130`, a release of one of `seen`?"""
    return ".".join(version.split(".")[:2]) in seen
