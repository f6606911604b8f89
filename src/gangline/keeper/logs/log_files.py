"""Log files of ranks: rotation, last bytes, removal of secrets.

A log above half of its limit is copied to a second file, over the earlier copy, and truncated: ranks append to one open
file for their whole life, so the file itself stays. Output between copy and truncation is lost.
"""

import mmap
import shutil
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from gangline.keeper.logs.journal import utc_now
from gangline.sanitize import CONCEALED

GENERATION_HEADER = "---- rank "
"""Start of the line that precedes the output of a rank in a generation."""
MAX_BYTES = 64 << 20
"""Of one rank's log on disk, both halves together."""


def write_generation_header(log: Path, *, rank: int, generation: int) -> None:
    """Mark that the following output is of this generation."""
    with log.open("a") as file:
        file.write(f"{GENERATION_HEADER}{rank}, generation {generation}, {utc_now()}\n")


def rotated_path(log: Path) -> Path:
    """File of the older half of `log`."""
    return log.with_name(f"{log.name}.1")


def rotate(logs: Iterable[Path], *, max_bytes: int = MAX_BYTES) -> None:
    """Rotate the logs that are above half of `max_bytes`; the keeper calls it periodically."""
    for log in logs:
        with suppress(FileNotFoundError):
            if log.stat().st_size > max_bytes // 2:
                _rotate(log, max_bytes // 2)


def last_bytes(log: Path, size: int) -> bytes:
    """The last `size` bytes of both halves; if earlier bytes are left out, they begin with a whole line."""
    halves = b"".join(tail(each, size + 1) for each in (rotated_path(log), log))
    if len(halves) <= size:
        return halves
    return halves[-size - 1 :].partition(b"\n")[2]


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
