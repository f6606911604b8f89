"""Grammar of keys: one check for every store, before a key becomes a path or a URL."""

import re

from gangline.errors import UsageError

MAX_KEY_BYTES = 900
MAX_SEGMENT_BYTES = 255
"""What a file system takes as one name; MinIO and versitygw keep objects as files, too."""

_SEGMENT = re.compile(r"[A-Za-z0-9._-]+")
_SHORT_SEGMENT = rf"(?!\.{{1,2}}(?:/|\Z))[A-Za-z0-9._-]{{1,{MAX_SEGMENT_BYTES}}}"
_KEY = re.compile(rf"{_SHORT_SEGMENT}(?:/{_SHORT_SEGMENT})*")


def check_key(key: str) -> str:
    """Return `key`, or raise UsageError naming what is wrong with it."""
    if len(key) > MAX_KEY_BYTES:
        raise UsageError(f"a key has at most {MAX_KEY_BYTES} bytes, {key[:40]!r}... has {len(key)}")
    for segment in key.split("/"):
        _check_segment(segment, key)
    return key


def is_key(text: str) -> bool:
    """Would `check_key` take it? For the many names of a listing."""
    return len(text) <= MAX_KEY_BYTES and _KEY.fullmatch(text) is not None


def check_prefix(prefix: str) -> str:
    """Return `prefix`: empty, or the beginning of keys; its last segment may be cut short or empty."""
    if prefix:
        check_key(prefix[:-1] if prefix.endswith("/") else prefix)
    return prefix


def _check_segment(segment: str, key: str) -> None:
    if segment in (".", "..") or not _SEGMENT.fullmatch(segment):
        raise UsageError(f"key {key[:100]!r}: segments are of A-Z a-z 0-9 . _ -, never '.' or '..'; found {segment!r}")
    if len(segment) > MAX_SEGMENT_BYTES:
        raise UsageError(
            f"key {key[:40]!r}...: a segment has at most {MAX_SEGMENT_BYTES} bytes, found {len(segment)}; use more '/'"
        )
