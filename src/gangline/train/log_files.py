"""Logs of ranks do not fill a disk: what grows beyond half of its limit is moved aside, over what was aside before.

Ranks append to one open file for their whole life, so the file stays and its content goes: copied, then cut off. What
is written between the two is lost, which a rank that prints so much can bear.
"""

import mmap
import shutil
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from gangline.sanitize import CONCEALED
from gangline.train.journal import utc_now

MARK = "---- rank "
"""How the line begins that stands before what a rank writes in a generation."""
MAX_BYTES = 64 << 20
"""Of one rank's log on disk, both halves together."""


def mark(log: Path, *, rank: int, generation: int) -> None:
    """What follows is of this generation."""
    with log.open("a") as file:
        file.write(f"{MARK}{rank}, generation {generation}, {utc_now()}\n")


def aside(log: Path) -> Path:
    """Where the older half of `log` lies."""
    return log.with_name(f"{log.name}.1")


def bound(logs: Iterable[Path], *, max_bytes: int = MAX_BYTES) -> None:
    """Move what is too much aside; called every now and then."""
    for log in logs:
        with suppress(FileNotFoundError):
            if log.stat().st_size > max_bytes // 2:
                _move_aside(log, max_bytes // 2)


def last_bytes(log: Path, size: int) -> bytes:
    """The last `size` bytes of both halves, from the start of a line on where something is left out."""
    halves = b"".join(_tail(each, size) for each in (aside(log), log))
    if len(halves) <= size:
        return halves
    return halves[-size - 1 :].partition(b"\n")[2]


def conceal(logs: Iterable[Path], values: Sequence[bytes]) -> None:
    """Take `values` out of logs that are complete: overwritten in place, so a reader of the file goes on."""
    for log in (half for each in logs for half in (each, aside(each))) if values else ():
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


def _move_aside(log: Path, most: int) -> None:
    with log.open("r+b") as source, aside(log).open("wb") as target:
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
