"""Entry point for one stage of an existing run, for drivers that call stage by stage: Jenkins, Kubeflow pipelines."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from gangline.errors import StillRunning, UsageError, error_for
from gangline.line.gangs.launchers import FindOwner
from gangline.line.record import runs
from gangline.line.record.context import RunContext
from gangline.line.record.observer import Observer
from gangline.line.record.states import raise_for_verdict
from gangline.line.request.project_claim import require_owned
from gangline.line.run import lease
from gangline.line.run.driver import DriverKind, RunWorkspace, driving, open_run_workspace
from gangline.line.stages.executor import execute_stage, finish_run, require_earlier_stages, select_stages
from gangline.spec.codec import from_json
from gangline.spec.config.line import Line
from gangline.spec.config.site import Site
from gangline.spec.record import Record, StageInfo
from gangline.spec.run_flags import FINAL, stage
from gangline.storage.objects.blobs import get_blob
from gangline.storage.objects.protocol import ObjectStore


def run_stage(
    repo: Path,
    name: str,
    run: str,
    *,
    site: Site,
    environ: Mapping[str, str],
    observer: Observer | None = None,
    max_seconds: float | None = None,
    follow_seconds: float | None = None,
    kind: DriverKind = "stage",
    url: str | None = None,
    find_owner: FindOwner | None = None,
) -> Record:
    """Run one stage of an existing run; for a stage that has ended, return or raise its result.

    Args:
        repo: Folder of the line.
        name: One of the ten.
        run: Run id, or a unique prefix of one.
        site: Where it runs.
        environ: For secret references.
        observer: Gets all events of the run.
        max_seconds: Wait at most so long for another driver of this run.
        follow_seconds: Follow a gang at most so long, then leave gang and stage running.
        kind: Driver that calls the stages.
        url: Page of the driver, for the record.
        find_owner: Finds the object that owns gangs on a cluster, with which they are deleted.

    Raises:
        UsageError: No such run or stage, or an earlier stage is not done.
        IntegrityError: The record's seal is invalid, or its project belongs to another repository.
        StillRunning: Another driver was not done in time, or the gang is still running.
        GanglineError: The error that the stage ended with, by its recorded exit code.
    """
    select_stages(name, name)
    workspace = open_run_workspace(repo, site=site, environ=environ, observer=observer)
    sealer = workspace.sealer()
    record = sealer.check(runs.find_run(workspace.store, run))
    require_owned(workspace.store, record, site=site, sealer=sealer, repo=repo)
    if stage(record, name).state not in FINAL:
        require_earlier_stages(record, None if name == "report" else name)
        with _driving_when_free(workspace, record, max_seconds, kind=kind, url=url, find_owner=find_owner) as ctx:
            ctx.follow_until = None if follow_seconds is None else time.monotonic() + follow_seconds
            if url is not None and kind == "jenkins":
                _link(ctx, kind, url)
            ctx.observer.run_started(ctx.record)
            if name == "report":
                finish_run(ctx)
            elif stage(ctx.record, name).state not in FINAL:
                execute_stage(ctx, name)
            record = ctx.record
    info = stage(record, name)
    if info.exit:
        raise error_for(info.exit)(info.message)
    return raise_for_verdict(record) if _was_closed(info) else record


def _was_closed(info: StageInfo) -> bool:
    """Whether the run ended before or during this stage, so that the run's verdict is the result."""
    return info.state == "cancelled" or info.started is None


def _link(ctx: RunContext, name: str, url: str) -> None:
    """Record the page of the driver; each build of a run has another one."""
    if ctx.record.links.get(name) != url:
        ctx.change(lambda record: replace(record, links=record.links | {name: url}))


@contextmanager
def _driving_when_free(
    workspace: RunWorkspace,
    record: Record,
    max_seconds: float | None,
    *,
    kind: DriverKind,
    url: str | None,
    find_owner: FindOwner | None,
) -> Iterator[RunContext]:
    """Drive like `driving`, but wait up to `max_seconds` for another driver."""
    deadline = time.monotonic() + (max_seconds or 0.0)
    while True:
        try:
            line = line_of(workspace.store, record)
            with driving(workspace, record, line, kind=kind, url=url, find_owner=find_owner) as ctx:
                yield ctx
                return
        except lease.HeldError as error:
            if max_seconds is None:
                raise
            if time.monotonic() >= deadline:
                raise StillRunning(str(error)) from error
        time.sleep(0.5)


def line_of(store: ObjectStore, record: Record) -> Line:
    """The effective line, which the resolve stage stored."""
    key = stage(record, "resolve").outputs.get("line")
    if key is None:
        raise UsageError(f"{record.run.id} was not resolved completely; gangline run completes it")
    return from_json(Line, get_blob(store, str(key)))
