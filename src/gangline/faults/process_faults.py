"""Injects faults into the processes of a local gang: kill, freeze, stop or slow a rank; lose a virtual node.

A rank is found through the status of its keeper, inside or outside a sandbox. A temporary fault ends by itself: a
helper process, started before the fault, ends it at the deadline even if the caller ends.
"""

import os
import shutil
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

from gangline import procfs
from gangline.errors import UsageError
from gangline.launch.local.folder import GangFolder, Process
from gangline.launch.local.keeper_start import replace_keeper
from gangline.launch.local.processes import living_keepers, rank_process, send

_PERIOD_SECONDS = 0.004
"""Period of stopping and continuing a slow rank; far below a step, so that all steps are equally slow."""
_THAWER = """
import os, signal, sys, time
time.sleep(float(sys.argv[2]))
try:
    os.kill(int(sys.argv[1]), signal.SIGCONT)
except ProcessLookupError:
    pass
"""

_SLOWER = """
import os, signal, sys, time
pid, seconds, still, period = int(sys.argv[1]), *map(float, sys.argv[2:])
end = time.monotonic() + seconds
try:
    while time.monotonic() < end:
        os.kill(pid, signal.SIGSTOP)
        time.sleep(still * period)
        os.kill(pid, signal.SIGCONT)
        time.sleep((1 - still) * period)
except ProcessLookupError:
    pass
"""


def kill_rank(home: Path, rank: int) -> int:
    """SIGKILL to the process of `rank` of the gang in `home`; returns its pid.

    Raises:
        UsageError: No such rank runs.
    """
    pid = _pid(home, rank)
    _send(pid, signal.SIGKILL, rank)
    return pid


def freeze_rank(home: Path, rank: int, seconds: float) -> int:
    """Stop the process of `rank` for `seconds`, then continue it; returns its pid at once.

    Raises:
        UsageError: No such rank runs.
    """
    pid = _pid(home, rank)
    _start(_THAWER, pid, seconds)
    _send(pid, signal.SIGSTOP, rank)
    return pid


def stop_rank(home: Path, rank: int) -> int:
    """SIGTERM to the process of `rank`, as a platform asks a pod to leave; returns its pid.

    Raises:
        UsageError: No such rank runs.
    """
    pid = _pid(home, rank)
    _send(pid, signal.SIGTERM, rank)
    return pid


def slow_rank(home: Path, rank: int, seconds: float, *, share: float) -> int:
    """Stop the process of `rank` for `share` of the time in the next `seconds`; returns its pid at once.

    Raises:
        UsageError: No such rank runs.
    """
    pid = _pid(home, rank)
    _start(_SLOWER, pid, seconds, share, _PERIOD_SECONDS)
    return pid


def last_step(home: Path, rank: int) -> int | None:
    """Last step in the heartbeat of `rank`, whose layout `keeper.ipc.heartbeat` defines (no import of launchers)."""
    folder = GangFolder(home)
    data = folder.read_inside(folder.inside / "heartbeat" / str(rank)) or b""
    step = int.from_bytes(data[16:24], sys.byteorder, signed=True)
    return step if data.startswith(b"gangbeat") and step >= 0 else None


def _start(program_text: str, *arguments: float) -> None:
    """Start a helper in its own session; it outlives this process and ends by itself."""
    program = [sys.executable, "-S", "-E", "-c", program_text, *map(str, arguments)]
    null = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in (0, 1, 2)]
    os.posix_spawn(sys.executable, program, {}, setsid=True, file_actions=null)


def _pid(home: Path, rank: int) -> int:
    folder = GangFolder(home)
    process = rank_process(folder, rank)
    if process is None:
        nodes = folder.podset().num_nodes if folder.exists else 0
        living = sorted(each for node in range(nodes) if (status := folder.keeper(node)) for each in status.ranks)
        raise UsageError(f"rank {rank} of {home.name} does not run; running: {', '.join(living) or 'none'}")
    return process.pid


def _send(pid: int, number: signal.Signals, rank: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError as error:
        raise UsageError(f"rank {rank} was gone before {number.name} reached process {pid}") from error


_MEMORY = Path("/dev/shm")  # noqa: S108  # where keepers hold copies; layout in `keeper.main.copy_folder`
_DYING_SECONDS = 30.0


def lose_node(home: Path, node: int) -> int:
    """Kill keeper, helpers and ranks of `node` and delete its memory; then start another keeper.

    Returns the pid of the killed keeper. To the gang this looks like a pod that is lost and replaced at once.

    Raises:
        UsageError: The keeper of that node does not run.
    """
    folder = GangFolder(home)
    with folder.keepers_lock():
        keeper = living_keepers(folder).get(node) if folder.exists else None
        if keeper is None:
            raise UsageError(f"the keeper of node {node} of {home.name} does not run")
        environ = procfs.environ(keeper.pid)
        _kill_all(folder, node, keeper)
        for copies in _MEMORY.glob(f"gangline-copies-*-{keeper.pid}-{keeper.start_time}"):
            shutil.rmtree(copies, ignore_errors=True)  # of a sandbox they went with it
        replace_keeper(folder, node, environ)
    return keeper.pid


def _kill_all(folder: GangFolder, node: int, keeper: Process) -> None:
    """Kill every process with this folder and this node in its environment."""
    send(keeper, signal.SIGKILL)
    deadline = time.monotonic() + _DYING_SECONDS
    while pids := _processes(folder, node):
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            with suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        if time.monotonic() > deadline:
            raise UsageError(f"processes {sorted(pids)} of node {node} do not die of SIGKILL; the kernel holds them")
        time.sleep(0.01)


def _processes(folder: GangFolder, node: int) -> set[int]:
    of_gang = set(procfs.with_variable("GANGLINE_HOME", str(folder.inside)))
    return of_gang & set(procfs.with_variable("NODE_RANK", str(node)))
