"""Log of a rank on disk: two halves, and the line that says how much of the log is gone. Pure.

A position in a log counts the bytes that the rank has written, whether they are still there or not.
"""

import re
from pathlib import Path

_GONE = re.compile(rb"\[gangline: (\d{1,18}) earlier bytes are gone\]\n")


def older_half(log: Path) -> Path:
    """File of the older half of `log`; there is none before the log was too long."""
    return log.with_name(f"{log.name}.1")


def gone_line(num_bytes: int) -> bytes:
    """Line in the place of `num_bytes` bytes that are gone."""
    return b"[gangline: %d earlier bytes are gone]\n" % num_bytes


def split_gone(data: bytes) -> tuple[int, bytes]:
    """(number of bytes that are gone before a half, the half without the line that says so)."""
    match = _GONE.match(data)
    return (int(match[1]), data[match.end() :]) if match else (0, data)


def older_from(data: bytes, position: int) -> tuple[int, bytes, int]:
    """What an older half holds from `position` on.

    Args:
        data: Content of the file.
        position: End of what was read before.

    Returns:
        How many bytes after `position` are gone, the bytes that follow them, and the position of their end, which is
        the beginning of the newer half.
    """
    gone, kept = split_gone(data)
    return max(0, gone - position), kept[max(0, position - gone) :], gone + len(kept)
