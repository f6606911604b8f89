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
from gangline.report.facts import stop_text
from gangline.spec.config.site import Site
from gangline.spec.record import Record
from gangline.storage import site_paths
from gangline.storage.objects.protocol import ObjectStore

POLL_SECONDS = 0.05
LOCAL_IMAGE = "python:3.11-slim"
"""Tasks are processes here; the runner only requires `python` in the name."""


def run_locally(
    repo: Path, record: Record, *, site: Site, environ: Mapping[str, str], store: ObjectStore, observer: Observer
) -> Record:
    """Take a built run from plan to report; returns its record.

    Raises:
        GanglineError: The error that left the run open: no capacity, store unavailable, another driver.
        TrainingError: The runner ended without an error of a task; with the end of its log.
        Interrupted: Ctrl-C; a gang of this machine was stopped with a checkpoint.
        KeyboardInterrupt: Ctrl-C; a gang on a cluster keeps running.
    """
    with tempfile.TemporaryDirectory(prefix="gangline-kfp-") as name:
        folder = Path(name)
        config = TaskConfig(site=site, repo=str(repo), told=name)
        request = WorkerRequest(
            action="run", root=str(find_root(repo)), image=LOCAL_IMAGE, run_seconds=int(site.limits.run_seconds),
            retries=0, folder=name, run=record.run.id, config=config.to_text(),
        )  # fmt: skip
        events = TaskEventReader(folder, observer, [])
        log = log_file(repo, record.run.id)
        with worker_process(request, environ=environ, secrets=secret_variables(site), log=log) as process:
            interrupted = _follow_worker(process, events)
        events.forward()
    current = runs.find_run(store, record.run.id)
    if interrupted and current.run.state == "open":
        raise interruption(current)
    _require_end(current, events.failures, log)
    return current


def _follow_worker(process: "subprocess.Popen[bytes]", events: TaskEventReader) -> bool:
    """Forward events of tasks until the runner has ended; True after Ctrl-C, which tasks handle like a driver."""
    interrupted = False
    while True:
        try:
            while process.poll() is None:
                events.forward()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(POLL_SECONDS)
        except KeyboardInterrupt:
            if interrupted:
                raise
            interrupted = True
            os.killpg(process.pid, signal.SIGINT)
            continue
        return interrupted


def interruption(record: Record) -> BaseException:
    """Exception for Ctrl-C, as a driver in this process raises it."""
    if record.run.launcher.is_here:
        return Interrupted(f"{stop_text(record) or 'stopped by Ctrl-C'}; gangline run resumes {record.run.id}")
    return KeyboardInterrupt()


def log_file(repo: Path, run: str) -> Path:
    """Log file of runner and tasks of `run`, for all attempts."""
    folder = site_paths.home(repo) / "kfp"
    with storage_errors(folder):
        folder.mkdir(exist_ok=True)
    return folder / f"{run}.log"


def _require_end(record: Record, failures: list[GanglineError], log: Path) -> None:
    """Raise the first error of a task for a run that is still open; later errors follow from it."""
    if record.run.state == "ended":
        return
    if failures:
        raise failures[0]
    raise TrainingError(f"the local runner ended before {record.run.id} did: {last_log_line(log)}; full log: {log}")
