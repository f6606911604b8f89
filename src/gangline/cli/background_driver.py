"""A driver in a session of its own: `gangline run --detach`, and the driver that a drill kills.

    TMPDIR/gangline-run-*/{out,err,lock}     its JSON lines, its messages, a lock that it holds while it runs

The driver removes the folder when it ends. The folder of a killed driver has a lock without a holder, and the next
detached start removes it.
"""

import fcntl
import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from gangline.errors import TrainingError, error_for

START_SECONDS = 60.0
PREFIX = "gangline-run-"
YOUNG_SECONDS = 60.0
"""Age of a folder up to which it may not have its lock yet."""


@dataclass(frozen=True, slots=True)
class BackgroundDriver:
    """`gangline run` in the background, its run known by name."""

    run: str
    process: "subprocess.Popen[bytes]"
    log: Path
    """JSON lines of its view, while it runs."""


def start_driver(arguments: Sequence[str]) -> BackgroundDriver:
    """Start `gangline run ARGUMENTS`; return once its run has a name.

    Raises:
        GanglineError: The run did not come to life; its own words and its own class.
    """
    remove_stale_folders()
    folder = Path(tempfile.mkdtemp(prefix=PREFIX))
    with (folder / "out").open("wb") as out, (folder / "err").open("wb") as err, (folder / "lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        process = subprocess.Popen(
            [sys.executable, "-m", "gangline.cli.background_driver", str(folder), str(lock.fileno()), *arguments],
            stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True, pass_fds=[lock.fileno()],
        )  # fmt: skip
        return BackgroundDriver(_wait_for_name(process, folder), process, folder / "out")


def remove_stale_folders() -> list[Path]:
    """Folders of this user's detached drivers that were killed; which went."""
    paths = [path for path in Path(tempfile.gettempdir()).glob(f"{PREFIX}*") if _is_stale(path)]
    for folder in paths:
        shutil.rmtree(folder, ignore_errors=True)
    return paths


def main() -> None:
    """The driver itself: `FOLDER LOCK ARGUMENTS`, as `start_driver` calls it; ends with the exit code of the run."""
    from gangline.cli.main import main as gangline

    folder, lock, *arguments = sys.argv[1:]
    os.set_inheritable(int(lock), False)  # a gang outlives its driver
    sys.argv = ["gangline", "run", *arguments, "--json"]
    try:
        gangline()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _is_stale(folder: Path) -> bool:
    with suppress(OSError):
        status = folder.lstat()
        is_ours = stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid()
        if not is_ours or time.time() - status.st_mtime < YOUNG_SECONDS:
            return False
        with (folder / "lock").open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False


def _wait_for_name(process: "subprocess.Popen[bytes]", folder: Path) -> str:
    deadline = time.monotonic() + START_SECONDS
    with (folder / "out").open("rb") as out, (folder / "err").open("rb") as err:  # the driver may be faster than we
        while time.monotonic() < deadline:
            code = process.poll()
            out.seek(0)
            first = out.readline()
            if first.endswith(b"\n"):
                return str(json.loads(first)["run"])
            if code is not None:
                shutil.rmtree(folder, ignore_errors=True)
                raise error_for(code)(_error_text(err) or f"the driver ended with {code} before its run had a name")
            time.sleep(0.05)
        process.terminate()
        raise TrainingError(f"wanted a run within {START_SECONDS:.0f} s, found none; {_error_text(err) or 'no output'}")


def _error_text(err: BinaryIO) -> str:
    return err.read().decode(errors="replace").strip().removeprefix("error: ")


if __name__ == "__main__":
    main()
