"""Processes of a rank that joined its gang: they are the rank, whatever its keeper started.

The keeper starts a command, which may be a shell or a launcher of processes; it is their *leader*. A process below it
joins with its first heartbeat. Requests to stop and for stacks go to those that joined.
"""

import os
from pathlib import Path

from gangline.keeper.ipc.joined import joined_path, read_joined
from gangline.procfs import descendants, is_alive, pids, start_time


class RankProcesses:
    """The leader of a rank and the processes that joined, by their pids in this pid namespace."""

    def __init__(self, leader: int, heartbeat: Path) -> None:
        self._leader = leader
        self._heartbeat = heartbeat
        self._size = 0
        self._joined: dict[int, int] = {}
        """Start time by pid."""

    def living(self) -> list[int]:
        """Those that joined and still run, the first one first; the leader if there is none."""
        self._update()
        return [pid for pid, started in self._joined.items() if is_alive(pid, started)] or [self._leader]

    def _update(self) -> None:
        """Find the processes again if another one joined."""
        try:
            size = joined_path(self._heartbeat).stat().st_size
        except FileNotFoundError:
            return
        if size != self._size:
            self._size = size
            self._joined = _find_processes(read_joined(self._heartbeat))


def _find_processes(joined: list[tuple[int, int]]) -> dict[int, int]:
    """Start time by pid of those that exist; one in a pid namespace of its own has another pid here than it wrote."""
    here = {(names[-1], start_time(pid)): pid for pid in descendants(os.getpid()) if (names := pids(pid))}
    return {here[each]: each[1] for each in joined if each in here}
