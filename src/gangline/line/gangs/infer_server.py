"""`python -m gangline.infer` as a child: in the sandbox, with the interpreter that has kserve, and its answers read.

The child gets a verified folder and its code, and no credential; what it should load next it reads on stdin.
"""

import json
import os
import queue
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from subprocess import TimeoutExpired
from typing import Any
from urllib.parse import urlsplit

import gangline
from gangline.errors import NotInstalledError, TrainingError, error_for
from gangline.launch.sandbox.module_runner import ModuleJob
from gangline.launch.sandbox.process_runner import ProcessRunner, RunningModule
from gangline.line.gangs.sandbox import sandbox_of
from gangline.spec.config.site import Site
from gangline.storage.objects.code_layer import unpack

READY_SECONDS = 300.0
_MOST_REPORTS, _MOST_LINE = 64, 64 << 10
DRAIN_SECONDS = 35.0
"""Longer than the server itself takes for its last answers."""
HOW_TO_INSTALL = (
    "in a clone: make infer; else: python3 -m venv ~/.cache/gangline/infer &&"
    " ~/.cache/gangline/infer/bin/pip install 'gangline[infer]'"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class ServedFolder:
    """What a server loads."""

    folder: Path
    """Verified."""
    code: bytes
    """Code layer."""
    name: str
    version: int


class InferServer:
    """A server that runs."""

    def __init__(self, running: RunningModule) -> None:
        self._running, self._number = running, 0
        self.reports: queue.Queue[dict[str, Any] | None] = queue.Queue(_MOST_REPORTS)
        """What it said; None: it ended."""
        threading.Thread(target=self._read, daemon=True, name="reports").start()

    @property
    def pid(self) -> int:
        """Process that was started; inside a sandbox the server is its child."""
        return self._running.process.pid

    def pids(self) -> set[int]:
        """Every process of it, also what its code forked."""
        return self._running.pids()

    def kill(self) -> None:
        """End it at once."""
        self._running.process.kill()

    def report(self, seconds: float) -> dict[str, Any] | None:
        """The next report; None: there was none within this time.

        Raises:
            GanglineError: The server ended, with the class of its exit code and its last lines.
        """
        try:
            found = self.reports.get(timeout=seconds)
        except queue.Empty:
            return None
        if found is None:
            code = self._running.process.wait()
            error = error_for(code) if code > 0 else TrainingError
            raise error(f"the server ended (exit {code}): {self._running.log_tail()}")
        return found

    def swap(self, served: ServedFolder) -> None:
        """Ask it to load another version while the first answers; `report` says how that ended."""
        self._number += 1
        with tempfile.TemporaryDirectory(prefix="gangline-code-") as place:
            unpack(served.code, Path(place) / "code")
            code = self._running.place(f"code-{self._number}", Path(place) / "code")
        folder = self._running.place(f"model-{self._number}", served.folder)
        self.order(swap={"folder": folder, "code": code, "version": served.version})

    def order(self, **words: Any) -> None:
        """Write one line to its stdin."""
        stdin = self._running.process.stdin
        assert stdin is not None
        stdin.write(json.dumps(words) + "\n")
        stdin.flush()

    def drain(self) -> int | None:
        """Let it answer what it has; its exit code, None: it had to be killed."""
        process = self._running.process
        assert process.stdin is not None
        process.stdin.close()
        try:
            return process.wait(DRAIN_SECONDS)
        except TimeoutExpired:
            return None

    def _read(self) -> None:
        stdout = self._running.process.stdout
        assert stdout is not None
        for line in iter(lambda: stdout.readline(_MOST_LINE), ""):
            try:
                self.reports.put(dict(json.loads(line)))
            except (ValueError, TypeError, RecursionError):
                continue
        self.reports.put(None)


def port_of(ready: Mapping[str, Any]) -> int:
    """Port of a report that a server is ready; where it listens is not for it to say."""
    try:
        return int(urlsplit(str(ready["ready"])).port or 0)
    except (KeyError, ValueError) as error:
        raise TrainingError(f"wanted the address of a server that is ready, found {str(ready)[:120]}") from error


@contextmanager
def started_server(
    served: ServedFolder, repo: Path, *, site: Site, environ: Mapping[str, str], options: tuple[str, ...] = (),
    token: str | None = None,
) -> "Iterator[InferServer]":  # fmt: skip
    """A server of `served` on this machine, which may not be ready yet; it is killed when the block ends.

    Args:
        served: Verified.
        repo: Of the model; decides what the sandbox hides.
        site: Its `[infer] python` and its sandbox.
        environ: Of this process.
        options: Of `python -m gangline.infer`, as `--port`.
        token: Of its callers.
    """
    with tempfile.TemporaryDirectory(prefix="gangline-packages-") as packages:
        place = Path(packages)
        place.chmod(0o755)
        (place / "gangline").symlink_to(Path(str(gangline.__file__)).parent)
        arguments = ("../model", "--code", ".", "--name", served.name, "--version", str(served.version), "--orders")
        job = ModuleJob(
            module="gangline.infer", arguments=(*arguments, *options), code=served.code, path=("../packages",),
            files={"model": served.folder, "packages": place}, seconds=0, trust="own",
            python=infer_python(site, environ), site_python=True,
        )  # fmt: skip
        runner = ProcessRunner(lambda trust: sandbox_of(repo, trust, site=site, environ=environ))
        with runner.start(job) as running:
            server = InferServer(running)
            server.order(token=token)
            yield server


def infer_python(site: Site, environ: Mapping[str, str]) -> str | None:
    """Interpreter that has kserve: that of the site, that of `make infer`, or None for this one.

    Raises:
        NotInstalledError: There is none; the message has the command that makes one.
    """
    if site.infer.python is not None:
        if not os.access(site.infer.python, os.X_OK):
            raise NotInstalledError(f"infer.python: {site.infer.python} is no interpreter; {HOW_TO_INSTALL}")
        return site.infer.python
    cache = Path(environ.get("XDG_CACHE_HOME") or Path(environ.get("HOME") or Path.home()) / ".cache")
    made = Path(environ.get("GANGLINE_INFER") or cache / "gangline" / "infer") / "bin" / "python"
    if made.exists():
        return str(made)
    if find_spec("kserve") is not None:
        return None
    raise NotInstalledError(
        f"gangline infer needs KServe's server, which wants an environment of its own; {sys.executable} has none and"
        f" {made} is not there. {HOW_TO_INSTALL}"
    )
