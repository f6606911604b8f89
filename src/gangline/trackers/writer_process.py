"""The writer of one tracker as a child process, seen from the driver: started, asked with a limit, ended.

The child has a session of its own, so that Ctrl-C at the terminal reaches it only by way of the driver; it ends by
itself once the driver is gone. Its environment is a short list, and its token comes on stdin.
"""

import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from gangline.errors import GanglineError
from gangline.sanitize import clean, conceal, concealable
from gangline.spec.config.secrets import resolve_secret
from gangline.spec.config.site import Site
from gangline.spec.config.site_tables import TrackTable
from gangline.storage import site_paths
from gangline.trackers.protocol import Mirrored, MirroredModel, Point, TrackedRun, WriterSettings

CALL_SECONDS = 10.0
OPEN_SECONDS = 60.0
"""Time to import a library, which asks no tracker."""
END_SECONDS = 2.0
BATCH = 1000
"""Points of one call."""
MOST_SENTENCE = 400
MOST_ANSWER_BYTES = 64 * 1024
PROGRAM = Path(__file__).with_name("child.py")
_PASSED = re.compile(r"PATH|HOME|LANG|LC_.*|TMPDIR|XDG_.*|VIRTUAL_ENV|LD_LIBRARY_PATH|SSL_CERT_(FILE|DIR)"
                     r"|REQUESTS_CA_BUNDLE|CURL_CA_BUNDLE|(?i:https?|all|no)_proxy")  # fmt: skip


class WriterFailed(GanglineError):
    """A call of a writer failed; the message is its cause."""

    def __init__(self, cause: str, *, is_refused: bool = False) -> None:
        super().__init__(cause)
        self.is_refused = is_refused
        """Whether another try fails, too, until somebody changes something."""


def writer_settings(repo: Path, site: Site, name: str, *, environ: Mapping[str, str]) -> WriterSettings:
    """Settings of the tracker `name`; raises ConfigError if its token is not there."""
    table = site.track[name]
    folder = Path(table.path).expanduser() if table.path else site_paths.home(repo) / "trackers" / name
    return WriterSettings(
        kind=table.kind,
        url=table.url,
        token=resolve_secret(table.token, environ) if table.token else None,
        mode=table.mode,
        path=str(folder.absolute()),
        prefix="gangline/" if table.programs else "",
    )


def trackers_of(site: Site, wanted: Sequence[str] | None) -> tuple[list[str], list[str]]:
    """Trackers of the site that get a run, and names of its `project.track` that the site does not have."""
    names = list(site.track) if wanted is None else [name for name in wanted if name in site.track]
    return names, [name for name in wanted or () if name not in site.track]


def rewrites(settings: WriterSettings) -> bool:
    """Whether each process of this writer begins a new file, and so needs all points of the run."""
    return settings.kind == "tensorboard" or (settings.kind == "wandb" and settings.mode == "offline")


class WriterProcess:
    """One child that writes one run; used by one thread at a time."""

    def __init__(
        self, settings: WriterSettings, *, table: TrackTable, environ: Mapping[str, str], seconds: float = CALL_SECONDS
    ) -> None:
        """Start the child; raises WriterFailed if the interpreter is not there."""
        self._settings, self._seconds, self._is_killed = settings, seconds, False
        self._secrets = concealable([settings.token] if settings.token else [])
        python = str(Path(table.python).expanduser()) if table.python else sys.executable
        try:
            self._process = subprocess.Popen(
                [python, "-P", str(PROGRAM)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                cwd="/", env={key: value for key, value in environ.items() if _PASSED.fullmatch(key)},
                start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            raise WriterFailed(f"wanted a Python at {python}, found: {error.strerror}", is_refused=True) from error

    def open(self) -> None:
        """Let it import its library; raises WriterFailed, as all calls do."""
        self._call("open", asdict(self._settings), seconds=OPEN_SECONDS)

    def begin(self, run: TrackedRun) -> None:
        self._call("begin", asdict(run))

    def write(self, points: Sequence[Point]) -> None:
        """Send at most BATCH points."""
        self._call("write", [(point.metric, point.step, point.time_ms, point.value) for point in points])

    def finish(self, run: TrackedRun) -> None:
        self._call("finish", asdict(run))

    def look(self, run: TrackedRun) -> Mirrored | None:
        """What the tracker has of the run."""
        answer = self._call("look", asdict(run))
        return None if answer is None else Mirrored(**answer)

    def model(self, model: MirroredModel) -> list[str]:
        """Mirror one version of a model and its aliases; sentences about what the tracker had otherwise."""
        sentences = self._call("model", asdict(model), seconds=3 * self._seconds)
        return [clean(str(text), limit=MOST_SENTENCE) for text in sentences or ()]

    def close(self) -> None:
        """Let the writer close its files, and end it."""
        try:
            self._call("close", None)
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(END_SECONDS)
        finally:
            self.end()

    def kill(self) -> None:
        """End the child and what its library started, from any thread; a call that waits for it fails."""
        if not self._is_killed:
            self._is_killed = True
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def end(self) -> None:
        """End the child and let go of it, in the thread that uses it."""
        self.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()

    def _call(self, name: str, content: Any, *, seconds: float | None = None) -> Any:
        limit = self._seconds if seconds is None else seconds
        late = threading.Event()

        def expire() -> None:
            late.set()
            self.kill()

        timer = threading.Timer(limit, expire)
        timer.daemon = True
        timer.start()
        try:
            answer = self._exchange({name: content})
        except (OSError, ValueError) as error:
            self.end()
            ended = (
                f"no answer to {name} within {limit:g} s"
                if late.is_set()
                else f"its writer ended with {self._process.returncode} in {name}"
            )
            raise WriterFailed(ended) from error
        finally:
            timer.cancel()
        if "failed" in answer:
            cause = clean(conceal(str(answer["failed"]), self._secrets), limit=MOST_SENTENCE)
            raise WriterFailed(cause, is_refused=answer.get("refused") is True)
        return answer.get("done")

    def _exchange(self, message: dict[str, Any]) -> dict[str, Any]:
        """Raises OSError or ValueError if the child is gone or answers with something else."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(message).encode() + b"\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline(MOST_ANSWER_BYTES))
        if not isinstance(answer, dict):
            raise ValueError(f"wanted an answer, found {answer!r:.40}")  # noqa: TRY004  # of a text
        return answer
