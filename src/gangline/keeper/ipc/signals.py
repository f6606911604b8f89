"""Signals between the keeper and its processes: parent death, stacks of a rank, flight records. Linux only."""

import ctypes
import os
import signal
from pathlib import Path

STACKS_SIGNAL = signal.SIGUSR1
"""Makes a rank write the stacks of its threads to its log."""
FLIGHT_SIGNAL = signal.SIGUSR2
"""Makes a rank write the flight record of its collectives to `flight_record_path`."""
FINISH_SIGNAL = signal.SIGUSR1
"""Makes the uploader send what is left and end; SIGTERM does not, as platforms send it to all processes of a job."""
MESSAGE_BYTES = 1 << 18
"""Largest message between the keeper and the warm parent."""
_SET_PARENT_DEATH_SIGNAL = 1
_SET_CHILD_SUBREAPER = 36
_libc = ctypes.CDLL(None, use_errno=True)


def flight_record_path(heartbeat: Path) -> Path:
    """File of a rank's flight record, in the folder of its heartbeat file."""
    return heartbeat.with_name(f"{heartbeat.name}.flight.json")


def die_with_parent(parent: int) -> None:
    """Have this process killed when `parent`, which started it, ends; also if that happened before this call."""
    _prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(128 + signal.SIGKILL)


def adopt_orphans() -> None:
    """Make descendants whose parent ends children of this process, which can then end and reap them."""
    _prctl(_SET_CHILD_SUBREAPER, 1)


def _prctl(option: int, value: int) -> None:
    if _libc.prctl(option, value, 0, 0, 0):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
