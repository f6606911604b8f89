"""Termination of processes: whole process groups, then all orphans of the keeper."""

import os
import signal
from collections.abc import Collection, Iterable
from contextlib import suppress

from gangline.procfs import children, state


def signal_groups(leaders: Iterable[int], number: int) -> None:
    """Send `number` to the process groups of these leaders; a group that is gone is fine."""
    for pid in leaders:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, number)


def bury(own: Collection[int]) -> None:
    """Take the exit status of dead orphans; `own` are children that somebody else waits for."""
    for pid in _orphans(own):
        if state(pid) == "Z":
            _wait(pid)


def end_orphans(own: Collection[int]) -> None:
    """Kill and bury all that was left to this process by ranks that ended."""
    while orphans := _orphans(own):
        for pid in orphans:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            _wait(pid)


def _orphans(own: Collection[int]) -> list[int]:
    return [pid for pid in children(os.getpid()) if pid not in own]


def _wait(pid: int) -> None:
    with suppress(ChildProcessError):
        os.waitpid(pid, 0)
