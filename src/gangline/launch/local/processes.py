"""Processes of a local gang: which are alive, and how they are ended. Signals require a matching start time.

A keeper in a sandbox is identified by its pid outside. The pids that it reports are those inside the sandbox, where it
is process 1, and ranks may have forged them: a process counts as one of a gang only if the gang's folder is in its
environment.
"""

import os
import signal
import time
from contextlib import suppress
from datetime import UTC, datetime

from gangline import procfs
from gangline.errors import SIGKILL_CODE, CancelledError, StorageError
from gangline.launch.local.folder import SANDBOXED, GangFolder, Process
from gangline.spec.gang.status import GangEnd

_DYING_SECONDS = 30.0


def living_keepers(folder: GangFolder) -> dict[int, Process]:
    """Running keepers by node, from `launch.json` or from their own status."""
    launched = folder.launched()
    if launched is None:
        return {}
    found = {}
    for node, process in enumerate(launched.keepers):
        _reap(process)
        if procfs.is_alive(process.pid, process.start_time):
            found[node] = process
        elif (reported := _self_reported(folder, node)) is not None:
            found[node] = reported
    return found


def rank_process(folder: GangFolder, rank: int) -> Process | None:
    """The process of a running rank, as its keeper reports it; None: it does not run."""
    launched = folder.launched()
    for node in range(len(launched.keepers) if launched else 0):
        status, keeper = folder.keeper(node), living_keepers(folder).get(node)
        if status is None or keeper is None or str(rank) not in status.ranks:
            continue
        pid = procfs.pid_here(status.ranks[str(rank)], below=keeper.pid)
        started = procfs.start_time(pid) if pid is not None else None
        return Process(pid=pid, start_time=started) if pid is not None and started is not None else None
    return None


def _self_reported(folder: GangFolder, node: int) -> Process | None:
    """A running keeper by its own status, started by a submitter that died before it wrote `launch.json`."""
    status = folder.keeper(node)
    if status is None or folder.end(node) is not None:
        return None
    for pid in _of_gang(folder):
        if procfs.start_time(pid) == status.start_time and procfs.pids(pid)[-1:] == [status.pid]:
            return Process(pid=pid, start_time=status.start_time)
    return None


def record_dead_keepers(folder: GangFolder, num_nodes: int) -> None:
    """Write the end of every node whose keeper died without writing it, and kill the processes it left."""
    if folder.launched() is None:
        return
    if not _lost(folder, num_nodes):
        return
    with folder.keepers_lock():
        lost = _lost(folder, num_nodes)  # another keeper may have taken the place since
        if not living_keepers(folder):
            kill_gang(folder)
        for node in lost:
            write_end(folder, node)


def _lost(folder: GangFolder, num_nodes: int) -> list[int]:
    """Nodes whose keeper died without writing its end."""
    living = living_keepers(folder)  # first: a keeper that ends after this look has written its file before
    return [node for node in range(num_nodes) if node not in living and folder.end(node) is None]


def kill_gang(folder: GangFolder) -> None:
    """Kill the keepers and all processes with this gang's folder in their environment, until none is left.

    Raises:
        StorageError: A process does not die of SIGKILL.
    """
    for keeper in living_keepers(folder).values():
        send(keeper, signal.SIGKILL)  # with it goes all that is in its sandbox, whatever its environment says by now
    deadline = time.monotonic() + _DYING_SECONDS
    while pids := _of_gang(folder):
        for pid in pids:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        for pid in pids:
            with suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        if time.monotonic() > deadline:
            raise StorageError(f"processes {pids} of {folder.home.name} do not die of SIGKILL; the kernel holds them")
        time.sleep(0.02)


def _of_gang(folder: GangFolder) -> list[int]:
    """Processes of this gang, even if its folder was deleted."""
    homes = (folder.home, folder.home / SANDBOXED)
    return list(procfs.with_variable("GANGLINE_HOME", *map(str, homes)))


def send(process: Process, number: int) -> None:
    """Send signal `number` unless the process has ended."""
    if procfs.is_alive(process.pid, process.start_time):
        with suppress(ProcessLookupError):
            os.kill(process.pid, number)


def _reap(process: Process) -> None:
    """Reap the process if it is a child of this one."""
    with suppress(ChildProcessError):
        os.waitpid(process.parent or process.pid, os.WNOHANG)


def write_end(folder: GangFolder, node: int) -> None:
    """Write the end of a node whose keeper died without writing it."""
    reason = folder.cancelled()
    status = folder.keeper(node)
    if reason is not None:
        code, retry, words = CancelledError.exit_code, CancelledError.retry, f"cancelled: {reason}"
    else:
        code, retry = SIGKILL_CODE, "same"
        log = folder.keeper_log(node)
        lines = log.read_text(errors="replace").strip().splitlines() if log.exists() else []
        last = f", last log line {lines[-1]!r}" if lines else " without output"
        words = f"the keeper of node {node} died{last}"
    end = GangEnd(
        exit_code=code,
        retry=retry,
        reason=words,
        generation=status.generation if status else 0,
        restarts=status.restarts if status else 0,
        time=datetime.now(UTC).isoformat(timespec="milliseconds"),
    )
    folder.write_inside(f"exit-{node}.json", end)
