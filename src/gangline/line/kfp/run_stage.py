"""What every component calls: one stage of a run, its end as typed outputs, its failure as the process's exit code.

A component's process is an entry like the command line: here, and there, the environment is read.
"""

import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from gangline.errors import GanglineError
from gangline.launch.kubernetes.api.sign_in import own_namespace
from gangline.line import run_stage as line_run_stage
from gangline.line import runs
from gangline.line.kfp import outputs as shown
from gangline.line.kfp.config import TaskConfig
from gangline.line.kfp.owner import find_workflow
from gangline.line.kfp.secrets import mounted_secrets
from gangline.line.kfp.told import Tells
from gangline.line.observer import Silent
from gangline.line.record_store import RecordStore
from gangline.line.states import stage
from gangline.sanitize import visible
from gangline.spec.record import Record, run_prefix
from gangline.spec.site import Site
from gangline.storage.protocol import ObjectStore

USERS_TMPDIR = "GANGLINE_TMPDIR"
"""What TMPDIR is outside the local runner's own temporary folder: gangs outlive that folder."""


class Ended(NamedTuple):
    """Outputs of a component, beside the artifacts."""

    run: str
    taken: bool
    """The stage was taken over from another run, or skipped."""


def run_stage(name: str, *, run: str, config: str, outputs: Mapping[str, Any] | None = None) -> Ended:
    """Run stage `name` of `run`, or answer what it ended with; the process ends with the code of a failure.

    Args:
        name: From plan to report.
        run: Whole run id.
        config: Text of a TaskConfig.
        outputs: Artifacts of the component, by `metrics`, `page`, `verdict`.
    """
    task = TaskConfig.from_text(config)
    _leave_the_runners_folder()
    tells = Tells(Path(task.told)) if task.told else None
    try:
        return _run(name, run, task, tells, outputs or {})
    except GanglineError as error:
        if tells is not None:
            tells.failed(name, error)
        print(visible(f"error: {error}"), file=sys.stderr)  # noqa: T201  # a pod's log is the component's screen
        raise SystemExit(error.exit_code) from error


def _run(name: str, run: str, task: TaskConfig, tells: Tells | None, outputs: Mapping[str, Any]) -> Ended:
    site, environ = mounted_secrets(task.site, os.environ)
    with _repository(task, site, environ) as repo:
        record = line_run_stage.run_stage(
            repo, name, run, site=site, environ=environ, observer=tells or Silent(),
            max_seconds=task.patience_seconds, kind="kfp", url=task.url,
            find_owner=partial(find_workflow, environ=environ, here=own_namespace()),
        )  # fmt: skip
        if outputs:
            store = runs.open_site_store(repo, site, environ)
            shown.write(record, _base(record, store), outputs)
    return Ended(run=record.run.id, taken=stage(record, name).state in {"taken", "skipped"})


@contextmanager
def _repository(task: TaskConfig, site: Site, environ: Mapping[str, str]) -> Iterator[Path]:
    """Folder of the line: the one on this machine, or the commits that came through the store, for this task alone."""
    if task.repo is not None:
        yield Path(task.repo)
        return
    with tempfile.TemporaryDirectory(prefix="gangline-") as name:
        folder = Path(name)
        if task.history is not None:
            from gangline.line.kfp.history import lay_out_history

            lay_out_history(runs.open_site_store(folder, site, environ), task.history, folder)
        repo = folder / task.folder
        repo.mkdir(parents=True, exist_ok=True)
        yield repo


def _base(record: Record, store: ObjectStore) -> Record | None:
    wanted = record.commit.base
    if wanted is None:
        return None
    return RecordStore(store, run_prefix(record.run.project, wanted.commit, wanted.run)).read()


def _leave_the_runners_folder() -> None:
    """Give the process its user's TMPDIR back, for whatever it starts that lives on."""
    users = os.environ.pop(USERS_TMPDIR, None)
    if users is not None:
        os.environ["TMPDIR"] = users
        tempfile.tempdir = None
