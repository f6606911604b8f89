"""The coordinator as a child of the process that started it, a driver or the first one of a pod: killed, it is started
again, for the rank of the gang waits for it."""

import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

ENDING_SECONDS = 30.0
_MOST_STARTS = 5


class CoordinatorSupervisor:
    """Processes of a coordinator in one folder, one after the other."""

    def __init__(self, module: str, folder: Path, environ: Mapping[str, str]) -> None:
        """Start it: `module` with `folder`, in which it finds its orders and its log is written."""
        self._module, self._folder, self._environ = module, folder, environ
        self._ended = threading.Event()
        self._process = self._start()
        self._keeper = threading.Thread(target=self._keep, name="coordinator", daemon=True)
        self._keeper.start()

    def wait(self, seconds: float | None = None) -> int | None:
        """Exit code of the last of them; None: one runs still after that time."""
        self._keeper.join(seconds)
        return None if self._keeper.is_alive() else self._process.poll()

    def end(self) -> None:
        """Ask the one that runs to end, and wait for it."""
        self._ended.set()
        while self._keeper.is_alive():
            self._process.terminate()
            self._keeper.join(1.0)

    def _keep(self) -> None:
        for _ in range(_MOST_STARTS):
            if self._process.wait() == 0 or self._ended.is_set():
                return
            self._process = self._start()

    def _start(self) -> "subprocess.Popen[bytes]":
        with (self._folder / "log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", self._module, str(self._folder)], env=dict(self._environ),
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip


@contextmanager
def supervised(module: str, folder: Path, environ: Mapping[str, str]) -> Iterator[CoordinatorSupervisor]:
    """A coordinator that ends with the block, by itself where it does so in time."""
    supervisor = CoordinatorSupervisor(module, folder, environ)
    try:
        yield supervisor
        supervisor.wait(ENDING_SECONDS)  # longer only for a gang that ended without saying so
    finally:
        supervisor.end()
