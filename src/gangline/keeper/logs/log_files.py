"""Rotation of rank logs: a file above half of its limit is copied aside, over the earlier copy, and truncated.

Ranks append to one open file for their whole life, so the file itself stays. What is written between copy and
truncation is lost.
"""

import mmap
import shutil
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from gangline.keeper.logs.journal import utc_now
from gangline.sanitize import CONCEALED

GENERATION_HEADER = "---- rank "
"""How the line begins that stands before what a rank writes in a generation."""
MAX_BYTES = 64 << 20
"""Of one rank's log on disk, both halves together."""


def write_generation_header(log: Path, *, rank: int, generation: int) -> None:
    """What follows is of this generation."""
    with log.open("a") as file:
        file.write(f"{GENERATION_HEADER}{rank}, generation {generation}, {utc_now()}\n")


def rotated_path(log: Path) -> Path:
    """Where the older half of `log` lies."""
    return log.with_name(f"{log.name}.1")


def rotate(logs: Iterable[Path], *, max_bytes: int = MAX_BYTES) -> None:
    """Move what is too much aside; called every now and then."""
    for log in logs:
        with suppress(FileNotFoundError):
            if log.stat().st_size > max_bytes // 2:
                _rotate(log, max_bytes // 2)


def last_bytes(log: Path, size: int) -> bytes:
    """The last `size` bytes of both halves, from the start of a line on where something is left out."""
    halves = b"".join(_tail(each, size) for each in (rotated_path(log), log))
    if len(halves) <= size:
        return halves
    return halves[-size - 1 :].partition(b"\n")[2]


def conceal_secrets(logs: Iterable[Path], values: Sequence[bytes]) -> None:
    """Take `values` out of logs that are complete: overwritten in place, so a reader of the file goes on."""
    for log in (half for each in logs for half in (each, rotated_path(each))) if values else ():
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
    with log.open("r+b") as source, rotated_path(log).open("wb") as target:
        source.seek(max(0, log.stat().st_size - most))
        shutil.copyfileobj(source, target, 1 << 20)
        source.truncate(0)


def _tail(path: Path, size: int) -> bytes:
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - size - 1))
            return file.read(size + 1)
    except FileNotFoundError:
        return b""
