"""The loss of a virtual node of this machine with all it holds, and its replacement. Knows a gang's folder alone."""

import os
import shutil
import signal
import time
from contextlib import suppress
from pathlib import Path

from gangline import procfs
from gangline.errors import UsageError
from gangline.launch.local.folder import GangFolder, Process
from gangline.launch.local.processes import living_keepers, send
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
        keeper = living_keepers(folder).get(node) if folder.exists else None
        if keeper is None:
            raise UsageError(f"no keeper of node {node} lives in {home.name}")
        environ = procfs.environ(keeper.pid)
        _kill_all(folder, node, keeper)
        for copies in _MEMORY.glob(f"gangline-copies-*-{keeper.pid}-{keeper.start_time}"):
            shutil.rmtree(copies, ignore_errors=True)  # of a sandbox they went with it
        replace_keeper(folder, node, environ)
    return keeper.pid


def _kill_all(folder: GangFolder, node: int, keeper: Process) -> None:
    """Whatever has this folder and this node in its environment."""
    send(keeper, signal.SIGKILL)
    patience = time.monotonic() + _DYING_SECONDS
    while pids := _processes(folder, node):
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            with suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        if time.monotonic() > patience:
            raise UsageError(f"processes {sorted(pids)} of node {node} do not die of SIGKILL; the kernel holds them")
        time.sleep(0.01)


def _processes(folder: GangFolder, node: int) -> set[int]:
    of_gang = set(procfs.with_variable("GANGLINE_HOME", str(folder.inside)))
    return of_gang & set(procfs.with_variable("NODE_RANK", str(node)))
