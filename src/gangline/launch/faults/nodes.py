"""The loss of a virtual node of this machine with all it holds, and its replacement. Knows a gang's folder alone."""

import os
import shutil
import signal
import time
from contextlib import suppress
from pathlib import Path

from gangline import procfs
from gangline.errors import UsageError
from gangline.launch.local.folder import GangFolder
from gangline.launch.local.start import replace_keeper

_MEMORY = Path("/dev/shm")  # noqa: S108  # where keepers hold copies; layout in `train.copy_folder`
_DYING_SECONDS = 30.0


def lose_node(home: Path, node: int) -> int:
    """SIGKILL to keeper, helpers and ranks of `node`, its memory gone; another keeper starts in its place.

    Returns the pid of the keeper that was. The gang sees what it sees when a pod vanishes and is replaced at once.

    Raises:
        UsageError: No keeper of that node lives.
    """
    folder = GangFolder(home)
    with folder.keepers_lock():
        status = folder.keeper(node) if folder.exists else None
        if status is None or not procfs.is_alive(status.pid, status.start_time):
            raise UsageError(f"no keeper of node {node} lives in {home.name}")
        environ = procfs.environ(status.pid)
        _kill_all(home, node)
        for copies in _MEMORY.glob(f"gangline-copies-*-{status.pid}-{status.start_time}"):
            shutil.rmtree(copies, ignore_errors=True)
        replace_keeper(folder, node, environ)
    return status.pid


def _kill_all(home: Path, node: int) -> None:
    """Whatever has this folder and this node in its environment."""
    patience = time.monotonic() + _DYING_SECONDS
    while pids := _processes(home, node):
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            with suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        if time.monotonic() > patience:
            raise UsageError(f"processes {sorted(pids)} of node {node} do not die of SIGKILL; the kernel holds them")
        time.sleep(0.01)


def _processes(home: Path, node: int) -> set[int]:
    of_gang = set(procfs.with_variable("GANGLINE_HOME", str(home)))
    return of_gang & set(procfs.with_variable("NODE_RANK", str(node)))
