"""`gangline run` as a child process in a session of its own: it outlives the service or search that started it, which
finds it again.

    PLACE/<name>/<start>/{out,err,pid}     its JSON lines, its messages, its process id

An order of the service is named by its number, a trial of a search by its run. The outcome of a run is in its record;
the folder only tells which run the driver created, and what it reported.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from gangline import procfs
from gangline.errors import storage_errors
from gangline.sanitize import clean

MOST_MESSAGE_BYTES = 4096
END_SECONDS = 5.0
"""Time from being asked to stop to being killed."""
LOOK_SECONDS = 0.05
PROGRAM = (sys.executable, "-P", "-m", "gangline", "run", "--json")
"""What drives a run; modules of the folder it is started in are not looked for."""


class DriverProcess:
    """One start of a driver; `process` where this process started it."""

    def __init__(self, folder: Path, process: "subprocess.Popen[bytes] | None" = None) -> None:
        self.folder = folder
        self._process = process

    @staticmethod
    def start(place: Path, name: str | int, command: Sequence[str], *, environ: Mapping[str, str]) -> "DriverProcess":
        """Run `command` with a session of its own; raises StorageError where its folder cannot be written."""
        number = 1 + max((int(path.name) for path in _starts(place, name)), default=0)
        folder = place / str(name) / str(number)
        with storage_errors(folder):
            folder.mkdir(parents=True, mode=0o700)
            with (folder / "out").open("wb") as out, (folder / "err").open("wb") as err:
                process = subprocess.Popen(
                    command, cwd=folder, env=dict(environ), stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                    start_new_session=True,
                )  # fmt: skip
            (folder / "pid").write_text(f"{process.pid} {procfs.start_time(process.pid) or 0}", "ascii")
        return DriverProcess(folder, process)

    @staticmethod
    def newest(place: Path, name: str | int) -> "DriverProcess | None":
        """The last start under a name, by whichever process."""
        path = max(_starts(place, name), key=lambda start: int(start.name), default=None)
        return None if path is None else DriverProcess(path)

    def run(self) -> str | None:
        """Name of its run, once it has reported one."""
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError), (self.folder / "out").open("rb") as out:
            line = out.readline(MOST_MESSAGE_BYTES)
            return str(json.loads(line)["run"]) if line.endswith(b"\n") else None
        return None

    @property
    def number(self) -> int:
        """Number of this start among those of its name, from 1."""
        return int(self.folder.name)

    def poll(self) -> int | None:
        """Its exit code once it has ended and is known: another process's child leaves none."""
        return None if self._process is None else self._process.poll()

    def detach(self) -> None:
        """Leave it running without this process."""
        if self._process is not None and self._process.poll() is None:
            self._process.returncode = 0  # or the handle complains once it is forgotten

    def end(self) -> None:
        """Send SIGTERM to the driver and its children, then kill them, whichever process started it."""
        for kind, seconds in ((signal.SIGTERM, END_SECONDS), (signal.SIGKILL, END_SECONDS)):
            deadline = time.monotonic() + seconds
            if self.is_alive():
                with contextlib.suppress(OSError, ValueError):
                    os.killpg(self._pid()[0], kind)
            while self.is_alive() and time.monotonic() < deadline:
                time.sleep(LOOK_SECONDS)

    def is_alive(self) -> bool:
        """Whether the process runs, also one that an earlier service or search started."""
        if self._process is not None:
            return self._process.poll() is None
        try:
            return procfs.is_alive(*self._pid())
        except (OSError, ValueError):
            return False

    def _pid(self) -> tuple[int, int]:
        """And when it began."""
        pid, start = (self.folder / "pid").read_text("ascii").split()
        return int(pid), int(start)

    def last_message(self) -> str:
        """Last line of its error output."""
        try:
            with (self.folder / "err").open("rb") as err:
                err.seek(max(0, err.seek(0, os.SEEK_END) - MOST_MESSAGE_BYTES))
                data = err.read(MOST_MESSAGE_BYTES)
        except OSError:
            return ""
        lines = [line for line in data.decode(errors="replace").splitlines() if line.strip()]
        return clean(lines[-1].removeprefix("error: "), limit=400) if lines else ""


def remove_folders_except(orders: Path, held: Collection[int], *, older_than: float) -> None:
    """Remove what is left of orders that no worker holds and that began before `older_than`."""
    for folder in orders.iterdir() if orders.is_dir() else []:
        if folder.name.isdecimal() and int(folder.name) not in held and folder.stat().st_mtime < older_than:
            shutil.rmtree(folder, ignore_errors=True)


def _starts(place: Path, name: str | int) -> list[Path]:
    folder = place / str(name)
    return [path for path in folder.iterdir() if path.name.isdecimal()] if folder.is_dir() else []
