"""`run --detach`: the same command in a session of its own, returning once its run has a name."""

import json as json_text
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import typer

from gangline.errors import error_for

START_SECONDS = 60.0


def start_detached(*, json: bool) -> None:
    """Start this process's own command again without `--detach`; print the run id.

    Raises:
        GanglineError: The run did not come to life; its own words and its own class.
    """
    arguments = [argument for argument in sys.argv[1:] if argument not in ("--detach", "--json")]
    folder = Path(tempfile.mkdtemp(prefix="gangline-"))
    with (folder / "out").open("wb") as out, (folder / "err").open("wb") as err:
        process = subprocess.Popen(
            [sys.executable, "-m", "gangline", *arguments, "--json"],
            stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True,
        )  # fmt: skip
    run = _wait_for_name(process, folder)
    if json:
        typer.echo(json_text.dumps({"run": run, "pid": process.pid, "log": str(folder / "out")}))
    else:
        typer.echo(f"{run} runs in the background: gangline follow {run} · stop it: gangline cancel {run}")


def _wait_for_name(process: "subprocess.Popen[bytes]", folder: Path) -> str:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        first, newline, _ = (folder / "out").read_text("utf-8").partition("\n")
        if newline:
            return str(json_text.loads(first)["run"])
        if (code := process.poll()) is not None:
            said = (folder / "err").read_text("utf-8").strip().removeprefix("error: ")
            raise error_for(code)(said or f"the driver ended with {code} before its run had a name")
        time.sleep(0.05)
    raise error_for(1)(f"the driver has not named its run in {START_SECONDS:.0f} s; it writes to {folder}")
