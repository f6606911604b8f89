"""Runs a table of commands: each with a log of its own, each started again when it ends, none left behind.

A child dies with its supervisor, whatever killed that. Leaves to others what the commands are."""

import contextlib
import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path

_LIBC = ctypes.CDLL(None, use_errno=True)
_PR_SET_PDEATHSIG = 1
_PAUSE_SECONDS = 1.0
"""Between the end of a command and its next start."""


class Supervisor:
    """Args: `logs`, a folder; `adopts`, where this process inherits orphans (the first one of a namespace)."""

    def __init__(self, logs: Path, *, adopts: bool = False) -> None:
        self._logs = logs
        self._adopts = adopts
        self._commands: dict[str, list[str]] = {}
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._ended: dict[str, float] = {}

    def start(self, commands: Mapping[str, list[str]]) -> None:
        for name, command in commands.items():
            self._commands[name] = command
            self._launch(name)

    def watch(self, *, until: Callable[[], bool]) -> None:
        """Start again what ends, until told."""
        while not until():
            for name, process in list(self._running.items()):
                if process.poll() is not None and self._rested(name):
                    self._launch(name)
            if self._adopts:
                self._reap_orphans()
            time.sleep(0.2)

    def stop(self, *, seconds: float = 3.0) -> None:
        for process in self._running.values():
            process.terminate()
        deadline = time.monotonic() + seconds
        for process in self._running.values():
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _reap_orphans(self) -> None:
        """Ended processes that are not ours; our own are left to `Popen`, which must see their codes."""
        own = {process.pid for process in self._running.values()}
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) is not None:
                if ended.si_pid in own:
                    return
                os.waitpid(ended.si_pid, 0)

    def _rested(self, name: str) -> bool:
        return time.monotonic() - self._ended.setdefault(name, time.monotonic()) >= _PAUSE_SECONDS

    def _launch(self, name: str) -> None:
        self._ended.pop(name, None)
        with (self._logs / f"{name}.log").open("ab") as log:
            log.write(f"== {time.strftime('%H:%M:%S', time.gmtime())} {' '.join(self._commands[name])}\n".encode())
            log.flush()
            self._running[name] = subprocess.Popen(
                self._commands[name],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # the kernel shares the cores out by session: each command counts for itself
                env={"GOGC": "400", **os.environ},  # they are small here: memory buys a fifth of their time
                preexec_fn=dies_with(os.getpid()),  # noqa: PLW1509  # one thread, so no lock is held
            )


def dies_with(parent: int) -> Callable[[], None]:
    """For `preexec_fn`: what the child becomes is killed when `parent` ends, however that comes."""

    def arrange() -> None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it died before we asked
            os._exit(1)

    return arrange
