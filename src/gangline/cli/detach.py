"""A driver in a session of its own: what `run --detach` leaves behind, and what a drill strikes."""

import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gangline.errors import TrainingError, error_for

START_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class BackgroundDriver:
    """`gangline run` in the background, its run known by name."""

    run: str
    process: "subprocess.Popen[bytes]"
    log: Path
    """JSON lines of its view."""


def start_driver(arguments: Sequence[str]) -> BackgroundDriver:
    """Start `gangline run ARGUMENTS`; return once its run has a name.

    Raises:
        GanglineError: The run did not come to life; its own words and its own class.
    """
    folder = Path(tempfile.mkdtemp(prefix="gangline-"))
    with (folder / "out").open("wb") as out, (folder / "err").open("wb") as err:
        process = subprocess.Popen(
            [sys.executable, "-m", "gangline", "run", *arguments, "--json"],
            stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True,
        )  # fmt: skip
    return BackgroundDriver(_wait_for_name(process, folder), process, folder / "out")


def _wait_for_name(process: "subprocess.Popen[bytes]", folder: Path) -> str:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        code = process.poll()
        first, newline, _ = (folder / "out").read_text("utf-8").partition("\n")
        if newline:
            return str(json.loads(first)["run"])
        if code is not None:
            said = (folder / "err").read_text("utf-8").strip().removeprefix("error: ")
            shutil.rmtree(folder)
            raise error_for(code)(said or f"the driver ended with {code} before its run had a name")
        time.sleep(0.05)
    process.terminate()
    raise TrainingError(f"wanted a run within {START_SECONDS:.0f} s, found none; the driver wrote to {folder}")
