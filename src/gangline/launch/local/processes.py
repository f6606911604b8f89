"""Which processes of a local gang live, and their end. Signals go only where pid and start time both fit."""

import os
import signal
import time
from contextlib import suppress
from datetime import UTC, datetime

from gangline import procfs
from gangline.errors import SIGKILL_CODE, CancelledError, StorageError
from gangline.launch.local.folder import GangFolder, Process
from gangline.spec.gang import GangEnd

_DYING_SECONDS = 30.0


def living_keepers(folder: GangFolder) -> dict[int, Process]:
    """Node to keeper of those that run. A keeper is known by its own word, or by who started it."""
    launched = folder.launched()
    if launched is None:
        return {}
    found = {}
    for node, process in enumerate(launched.keepers):
        _bury(process)
        status = folder.keeper(node)
        told = Process(pid=status.pid, start_time=status.start_time) if status else process
        for each in (told, process):
            if procfs.is_alive(each.pid, each.start_time):
                found[node] = each
                break
    return found


def notice_dead_keepers(folder: GangFolder, num_nodes: int) -> None:
    """Write the end of every node whose keeper is gone without a word, and end what it left behind."""
    if folder.launched() is None:
        return
    if not _lost(folder, num_nodes):
        return
    with folder.keepers_lock():
        lost = _lost(folder, num_nodes)  # another keeper may have taken the place since
        if not living_keepers(folder):
            end_everything(folder)
        for node in lost:
            _write_end(folder, node)


def _lost(folder: GangFolder, num_nodes: int) -> list[int]:
    """Nodes whose keeper is gone without a word."""
    living = living_keepers(folder)  # first: a keeper that ends after this look has written its file before
    return [node for node in range(num_nodes) if node not in living and folder.end(node) is None]


def end_everything(folder: GangFolder) -> None:
    """Kill whatever was started with this gang's folder in its environment, until nothing is left.

    Raises:
        StorageError: A process does not die; the kernel holds on to it.
    """
    patience = time.monotonic() + _DYING_SECONDS
    while pids := list(procfs.with_variable("GANGLINE_HOME", str(folder.home))):
        for pid in pids:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        for pid in pids:
            with suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        if time.monotonic() > patience:
            raise StorageError(f"processes {pids} of {folder.home.name} do not die of SIGKILL; the kernel holds them")
        time.sleep(0.02)


def send(process: Process, number: int) -> None:
    if procfs.is_alive(process.pid, process.start_time):
        with suppress(ProcessLookupError):
            os.kill(process.pid, number)


def _bury(process: Process) -> None:
    """Take the exit status, where it is this process's child."""
    with suppress(ChildProcessError):
        os.waitpid(process.pid, os.WNOHANG)


def _write_end(folder: GangFolder, node: int) -> None:
    reason = folder.cancelled()
    status = folder.keeper(node)
    if reason is not None:
        code, retry, words = CancelledError.exit_code, CancelledError.retry, f"cancelled: {reason}"
    else:
        code, retry = SIGKILL_CODE, "same"
        words = f"the keeper of node {node} died {_last_words(folder, node)}"
    end = GangEnd(
        exit_code=code,
        retry=retry,
        reason=words,
        generation=status.generation if status else 0,
        restarts=status.restarts if status else 0,
        time=datetime.now(UTC).isoformat(timespec="milliseconds"),
    )
    folder.write(f"exit-{node}.json", end)


def _last_words(folder: GangFolder, node: int) -> str:
    log = folder.log(f"keeper-{node}")
    lines = log.read_text(errors="replace").strip().splitlines() if log.exists() else []
    return f"with the words {lines[-1]!r}" if lines else "without a word"
