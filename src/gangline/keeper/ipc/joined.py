"""File of the processes that joined as a rank, next to its heartbeat: a line each, with pid and start time.

The pid is the one that the process has in its own pid namespace; the start time is the same in all of them.
"""

import os
import re
from pathlib import Path

from gangline.procfs import start_time

_MOST_BYTES = 1 << 16
_NUMBER = re.compile(rb"\d{1,18}")


def joined_path(heartbeat: Path) -> Path:
    """The file for the rank that has this `heartbeat`; it grows only."""
    return heartbeat.with_name(f"{heartbeat.name}.joined")


def join(heartbeat: Path) -> None:
    """Add this process."""
    handle = os.open(joined_path(heartbeat), os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        os.write(handle, f"{os.getpid()} {start_time(os.getpid())}\n".encode())
    finally:
        os.close(handle)


def read_joined(heartbeat: Path) -> list[tuple[int, int]]:
    """Pid and start time of each process; anything else that a rank may have written is left out."""
    with joined_path(heartbeat).open("rb") as file:
        lines = [line.split() for line in file.read(_MOST_BYTES).splitlines()]
    return [(int(words[0]), int(words[1])) for words in lines if len(words) == 2 and all(map(_NUMBER.fullmatch, words))]
