"""Server processes: start detached, find by pid and start time, wait until ready over HTTP, stop in order."""

import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from gangline import procfs
from gangline.http.retry import Deadline, RequestFailed
from gangline.stack.home import RunningServer

_TERMINATE_SECONDS = 20.0


def start_process(arguments: Sequence[str], environ: Mapping[str, str], *, log: Path, asked: str) -> RunningServer:
    """Start a program; it outlives this process and reads nothing. Raises OSError where it cannot be run."""
    files = (
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, str(log), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600),
        (os.POSIX_SPAWN_DUP2, 1, 2),
    )
    pid = os.posix_spawn(arguments[0], list(arguments), environ, file_actions=files, setsid=True)
    return RunningServer(pid, procfs.start_time(pid) or 0, asked)


def is_running(process: RunningServer) -> bool:
    """Whether the process runs; another process with its pid does not count."""
    return procfs.is_alive(process.pid, process.started)


def stop_process(process: RunningServer) -> bool:
    """End exactly that process, first by asking; False: it was gone already."""
    if not is_running(process):
        return False
    _signal(process, signal.SIGTERM)
    if not _ends_within(process, _TERMINATE_SECONDS):
        _signal(process, signal.SIGKILL)
        _ends_within(process, _TERMINATE_SECONDS)
    return True


def log_tail(log: Path) -> str:
    """What a server that died said last, in three lines."""
    try:
        text = log.read_text("utf-8", "replace")
    except OSError:
        return "it wrote nothing"
    said = [line.strip() for line in text.splitlines() if line.strip()]
    return " / ".join(said[-3:])[-400:] or "it wrote nothing"


def _signal(process: RunningServer, number: signal.Signals) -> None:
    """Send a signal to the process by its pid, right after it was seen to be ours."""
    if is_running(process):
        try:
            os.kill(process.pid, number)
        except ProcessLookupError:
            return


def _ends_within(process: RunningServer, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while is_running(process):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


_ONE_ANSWER_SECONDS = 2.0


def wait_ready(url: str, *, answers: tuple[int, ...], seconds: float, alive: Callable[[], bool]) -> bool:
    """Ask until one of `answers` comes; False after `seconds`, or once `alive` says no: then somebody else answered."""
    deadline = time.monotonic() + seconds
    while True:
        if http_status(url) in answers:
            return alive()
        if not alive() or time.monotonic() > deadline:
            return False
        time.sleep(0.1)


def http_status(url: str) -> int | None:
    """Status of the answer; None: there is none."""
    from gangline.http.client import HttpClient, TimeLimits  # needs a package that comes with the servers

    client = HttpClient(limits=TimeLimits(connect_seconds=_ONE_ANSWER_SECONDS))
    try:
        return client.request("GET", url, deadline=Deadline(_ONE_ANSWER_SECONDS)).status
    except RequestFailed:
        return None
    finally:
        client.close()
