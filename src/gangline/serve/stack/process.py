"""Servers as detached processes: a session and a log of their own, known by pid and start time, stopped in order."""

import os
import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from gangline import procfs
from gangline.serve.stack.home import Running

_POLITE_SECONDS = 20.0


def start(arguments: Sequence[str], environ: Mapping[str, str], *, log: Path, asked: str) -> Running:
    """Start a program; it outlives this process and reads nothing. Raises OSError where it cannot be run."""
    files = (
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, str(log), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600),
        (os.POSIX_SPAWN_DUP2, 1, 2),
    )
    pid = os.posix_spawn(arguments[0], list(arguments), environ, file_actions=files, setsid=True)
    return Running(pid, procfs.start_time(pid) or 0, asked)


def is_running(process: Running) -> bool:
    return procfs.is_alive(process.pid, process.started)


def stop(process: Running) -> bool:
    """End exactly that process, first by asking; False: it was gone already."""
    if not is_running(process):
        return False
    _signal(process, signal.SIGTERM)
    if not _gone_within(process, _POLITE_SECONDS):
        _signal(process, signal.SIGKILL)
        _gone_within(process, _POLITE_SECONDS)
    return True


def last_words(log: Path, lines: int = 3) -> str:
    """What a server that died said last."""
    try:
        text = log.read_text("utf-8", "replace")
    except OSError:
        return "it wrote nothing"
    said = [line.strip() for line in text.splitlines() if line.strip()]
    return " / ".join(said[-lines:])[-400:] or "it wrote nothing"


def _signal(process: Running, number: signal.Signals) -> None:
    """To the process, by its pid, right after it was seen to be ours."""
    if is_running(process):
        try:
            os.kill(process.pid, number)
        except ProcessLookupError:
            return


def _gone_within(process: Running, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while is_running(process):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True
