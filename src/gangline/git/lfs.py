"""Pointers of Git LFS: small texts that a commit holds in place of a file, whose content is on another server."""

import re

from gangline.units import format_bytes

_POINTER = re.compile(
    rb"version https://(?:git-lfs|hawser)\.github\.com/spec/v1\r?\n"
    rb"(?:ext-[^\n]+\n)*oid sha256:[0-9a-f]{64}\r?\n(?:ext-[^\n]+\n)*size (?P<size>[0-9]{1,20})\r?\n?\s*"
)
_LONGEST = 1024
"""Git LFS reads no longer ones."""


def pointed_size(data: bytes | memoryview) -> str | None:
    """Size, for people, of the file that `data` only points at; None where `data` is a file of its own."""
    match = _POINTER.fullmatch(data) if len(data) < _LONGEST else None
    return None if match is None else format_bytes(int(match["size"]))
