"""A run under kfp's local runner: the definitions in a worker process, results from the record and from files."""

import contextlib
import os
import signal
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from gangline.errors import GanglineError, TrainingError, storage_errors
from gangline.kfp.compiler import find_root, last_log_line
from gangline.kfp.task_config import TaskConfig, secret_variables
from gangline.kfp.task_events import TaskEventReader
from gangline.kfp.worker import WorkerRequest
from gangline.kfp.worker_process import worker_process
from gangline.line.gangs.follow import Interrupted
from gangline.line.record import runs
from gangline.line.record.observer import Observer
from gangline.spec.config.site import Site
from gangline.spec.record import Record
from gangline.storage import site_paths
from gangline.storage.objects.protocol import ObjectStore

POLL_SECONDS = 0.05
LOCAL_IMAGE = "python:3.11-slim"
"""Tasks are processes here; the runner only asks that the name speaks of Python."""


def run_locally(
    repo: Path, record: Record, *, site: Site, environ: Mapping[str, str], store: ObjectStore, observer: Observer
) -> Record:
    """Take a built run from plan to report; the record as it stands then.

    Raises:
        GanglineError: What left the run open: no room, a store that is away, another driver.
        TrainingError: The runner ended without a word of a task; the end of its log is shown.
        Interrupted: Ctrl-C; a gang of this machine was stopped with a checkpoint.
        KeyboardInterrupt: Ctrl-C; a gang elsewhere goes on.
    """
    with tempfile.TemporaryDirectory(prefix="gangline-kfp-") as name:
        folder = Path(name)
        config = TaskConfig(site=site, repo=str(repo), told=name)
        request = WorkerRequest(
            action="run", root=str(find_root(repo)), image=LOCAL_IMAGE, run_seconds=int(site.limits.run_seconds),
            retries=0, folder=name, run=record.run.id, config=config.to_text(),
        )  # fmt: skip
        listens = TaskEventReader(folder, observer, [])
        log = log_file(repo, record.run.id)
        with worker_process(request, environ=environ, secrets=secret_variables(site), log=log) as process:
            interrupted = _follow_worker(process, listens)
        listens.pass_on()
    stands = runs.find_run(store, record.run.id)
    if interrupted and stands.run.state == "open":
        raise interruption(stands)
    _require_end(stands, listens.failures, log)
    return stands


def _follow_worker(process: "subprocess.Popen[bytes]", listens: TaskEventReader) -> bool:
    """Pass on what tasks tell until the runner has ended; True where Ctrl-C came, which tasks obey as a driver does."""
    interrupted = False
    while True:
        try:
            while process.poll() is None:
                listens.pass_on()
                _pause(process)
        except KeyboardInterrupt:
            if interrupted:
                raise
            interrupted = True
            os.killpg(process.pid, signal.SIGINT)
            continue
        return interrupted


def interruption(record: Record) -> BaseException:
    """What Ctrl-C comes to, as under the driver of this process."""
    if record.run.target == "local":
        return Interrupted(f"stopped by Ctrl-C; gangline run goes on with {record.run.id} where it stands")
    return KeyboardInterrupt()


def log_file(repo: Path, run: str) -> Path:
    """What runner and tasks of `run` wrote, over all its tries."""
    folder = site_paths.home(repo) / "kfp"
    with storage_errors(folder):
        folder.mkdir(exist_ok=True)
    return folder / f"{run}.log"


def _pause(process: "subprocess.Popen[bytes]") -> None:
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(POLL_SECONDS)


def _require_end(record: Record, failures: list[GanglineError], log: Path) -> None:
    """A run that is open was left so by a task that said why: the first one, as later ones only miss its work."""
    if record.run.state == "ended":
        return
    if failures:
        raise failures[0]
    raise TrainingError(
        f"the local runner ended before {record.run.id} did: {last_log_line(log)}; all of it is in {log}"
    )
