"""Log files of ranks: rotation, last bytes, removal of secrets.

A log above half of its limit is copied to a second file, over the earlier copy, and truncated: ranks append to one open
file for their whole life, so the file itself stays. The copy begins with a whole line, after one that says how much is
gone (`spec.gang.log_halves`). Output that is written between the last two system calls, some microseconds, is lost.
"""

import mmap
import os
import shutil
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from gangline.sanitize import CONCEALED
from gangline.spec.gang.log_halves import gone_line, older_half, split_gone
from gangline.units import now

GENERATION_HEADER = "---- rank "
"""Start of the line that precedes the output of a rank in a generation."""
MAX_BYTES = 64 << 20
"""Most of one rank's log on disk, both halves together."""
_LONGEST_LINE = 1 << 16
"""Bytes of a line, at most, that a cut leaves out to begin with the next one."""


def write_generation_header(log: Path, *, rank: int, generation: int) -> None:
    """Mark that the following output is of this generation."""
    with log.open("a") as file:
        file.write(f"{GENERATION_HEADER}{rank}, generation {generation}, {now()}\n")


def rotate(logs: Iterable[Path], *, max_bytes: int = MAX_BYTES) -> None:
    """Rotate the logs that are above half of `max_bytes`; the keeper calls it periodically."""
    for log in logs:
        with suppress(FileNotFoundError):
            if log.stat().st_size > max_bytes // 2:
                _rotate(log, max_bytes // 2)


def last_bytes(log: Path, size: int) -> bytes:
    """The last `size` bytes of both halves; if earlier ones are gone or left out, a line says how many, and a whole
    line follows it."""
    halves = b"".join(split_gone(tail(path, size + 1))[1] for path in (older_half(log), log))
    if len(halves) > size:
        halves = halves[-size - 1 :].partition(b"\n")[2]
    gone = end_of(older_half(log)) + end_of(log) - len(halves)
    return (gone_line(gone) if gone > 0 else b"") + halves


def end_of(half: Path) -> int:
    """Bytes of one half, with those that its first line counts as gone; 0 where there is no file."""
    try:
        with half.open("rb") as file:
            gone, mark = _gone_of(file)
            return gone + os.fstat(file.fileno()).st_size - mark
    except FileNotFoundError:
        return 0


def tail(path: Path, size: int) -> bytes:
    """The last `size` bytes of one file; empty where there is no file."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - size))
            return file.read()
    except FileNotFoundError:
        return b""


def redact(logs: Iterable[Path], values: Sequence[bytes]) -> None:
    """Overwrite `values` in logs that are complete; in place, so that readers keep their position."""
    for log in (half for path in logs for half in (path, older_half(path))) if values else ():
        with suppress(FileNotFoundError), log.open("r+b") as file:
            if not log.stat().st_size:
                continue
            with mmap.mmap(file.fileno(), 0) as text:
                for value in values:
                    _overwrite(text, value)


def _overwrite(text: mmap.mmap, value: bytes) -> None:
    at = text.find(value)
    while at >= 0:
        text[at : at + len(value)] = CONCEALED.encode().ljust(len(value))
        at = text.find(value, at)


def _rotate(log: Path, most: int) -> None:
    draft = log.with_name(f".{log.name}.1")
    with log.open("r+b") as source, draft.open("wb") as target:
        gone, mark = _gone_of(source)
        start = max(mark, os.fstat(source.fileno()).st_size - most)
        source.seek(start)
        if start > mark:
            source.seek(start - 1)
            source.readline(_LONGEST_LINE)
        if gone := end_of(older_half(log)) + gone + source.tell() - mark:
            target.write(gone_line(gone))
        shutil.copyfileobj(source, target, 1 << 20)
        target.flush()
        draft.replace(older_half(log))
        while os.fstat(source.fileno()).st_size > source.tell():
            target.write(source.read())
        target.flush()
        source.truncate(0)


def _gone_of(half: BinaryIO) -> tuple[int, int]:
    """(bytes that are gone before a half, bytes of the line that says so)."""
    first = half.read(64)
    gone, rest = split_gone(first)
    return gone, len(first) - len(rest)
