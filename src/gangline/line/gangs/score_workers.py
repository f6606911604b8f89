"""Processes of role score on this machine: in the sandbox, each with one shard at a time, without a credential."""

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from gangline.errors import IntegrityError, TrainingError, error_for
from gangline.launch.sandbox.module_runner import ModuleJob
from gangline.launch.sandbox.process_runner import ProcessRunner, RunningModule
from gangline.line.gangs.sandbox import sandbox_of
from gangline.spec.config.site import Site

Blocks = Callable[[], Iterator[bytes]]


@dataclass(frozen=True, kw_only=True, slots=True)
class ScoreJob:
    """What one process loads."""

    folder: Path
    """Verified."""
    code: bytes
    """Code layer."""
    python: str | None
    """Interpreter of the version's environment; None: that of gangline."""
    columns: tuple[str, ...]
    batch: int
    outputs: tuple[str, ...] = ()
    env: Mapping[str, str]


class ScoreWorker:
    """A process that scores one shard after the other."""

    def __init__(self, running: RunningModule) -> None:
        self._running, self._number = running, 0

    @contextmanager
    def scored(self, blocks: Blocks, digest: str) -> Iterator[Path]:
        """The file of outputs for a shard, deleted afterwards; the process that wrote it is not trusted.

        Raises:
            IntegrityError: The shard has another digest, or what was written is no plain file.
            GanglineError: Of the exit code of the process, with its last lines.
        """
        self._number += 1
        name = f"shard-{self._number}"
        with tempfile.TemporaryDirectory(prefix="gangline-score-") as place:
            found, path = sha256(), Path(place, "in", "rows.arrow")
            path.parent.mkdir()
            with path.open("wb") as sink:
                for block in blocks():
                    found.update(block)
                    sink.write(block)
            if found.hexdigest() != digest:
                raise IntegrityError(f"wanted a shard of digest {digest[:12]}, found {found.hexdigest()[:12]}")
            folder = self._running.place(name, path.parent)
            self._ask({"shard": f"{folder}/rows.arrow", "into": f"{folder}/outputs.arrow"})
            outputs = Path(place, "outputs.arrow")
            _take(self._running.work / name / "outputs.arrow", outputs)
            shutil.rmtree(self._running.work / name, ignore_errors=True)
            yield outputs

    def _ask(self, order: dict[str, str]) -> None:
        process = self._running.process
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps(order) + "\n")
            process.stdin.flush()
            answer = process.stdout.readline()
        except BrokenPipeError:
            answer = ""
        if not answer:
            code = process.wait()
            error = error_for(code) if code > 0 else TrainingError
            raise error(self._running.log_tail(1) or f"a process that scores ended with exit {code}")


@contextmanager
def started_worker(job: ScoreJob, repo: Path, *, site: Site, environ: Mapping[str, str]) -> Iterator[ScoreWorker]:
    """A process of `job`; killed when the block ends."""
    arguments = ("../model", "--code", ".", "--columns", ",".join(job.columns), "--batch", str(job.batch))
    module = ModuleJob(
        module="gangline.train.roles.score", arguments=(*arguments, "--outputs", ",".join(job.outputs)), code=job.code,
        files={"model": job.folder}, seconds=0, trust="own", python=job.python, env=job.env,
    )  # fmt: skip
    runner = ProcessRunner(lambda trust: sandbox_of(repo, trust, site=site, environ=environ))
    with runner.start(module) as running:
        yield ScoreWorker(running)


def _take(source: Path, into: Path) -> None:
    """Copy a file that model code wrote; a link is not followed."""
    try:
        handle = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise IntegrityError(f"wanted a plain file of outputs, found none: {error.strerror}") from error
    with os.fdopen(handle, "rb") as opened, into.open("wb") as sink:
        shutil.copyfileobj(opened, sink)
