"""Entry points of a run: `run_line` drives its stages under a lease, `resolve_run` only finds or creates it.

`run_stage` runs one stage of an existing run, for drivers that call stage by stage: Jenkins, Kubeflow pipelines.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TypedDict

from gangline.errors import StillRunning, UsageError, error_for
from gangline.line.gangs.launchers import FindOwner, OpenLauncher
from gangline.line.record import runs
from gangline.line.record.context import RunContext
from gangline.line.record.observer import Observer
from gangline.line.record.states import raise_for_verdict
from gangline.line.request import targets
from gangline.line.request.project_claim import require_owned
from gangline.line.request.run_request import CommitOrigin, resolve_request
from gangline.line.request.trigger import refusal
from gangline.line.results.undeclared_reads import changed_since, named
from gangline.line.run import lease
from gangline.line.run.create import find_or_create_run
from gangline.line.run.driver import DriverKind, RunWorkspace, driving, open_run_workspace
from gangline.line.stages.executor import (
    execute_stage,
    execute_stages,
    finish_run,
    require_earlier_stages,
    select_stages,
)
from gangline.spec.codec import from_json
from gangline.spec.config.line import Line
from gangline.spec.config.site import Site
from gangline.spec.record import Record
from gangline.spec.run_flags import FINAL, SEARCH, stage
from gangline.storage.objects.blobs import get_blob
from gangline.storage.objects.protocol import ObjectStore


class RunArguments(TypedDict, total=False):
    """Arguments of `run_line` about the commit, for callers that pass them on."""

    commit: str | None
    overrides: Sequence[str]
    again: bool
    strategy: str | None
    start: str | None
    until: str | None
    origin: CommitOrigin | None


def run_line(
    repo: Path,
    *,
    site: Site,
    environ: Mapping[str, str],
    commit: str | None = None,
    overrides: Sequence[str] = (),
    again: bool = False,
    strategy: str | None = None,
    start: str | None = None,
    until: str | None = None,
    target: str | None = None,
    origin: CommitOrigin | None = None,
    observer: Observer | None = None,
    open_launcher: OpenLauncher | None = None,
) -> Record:
    """Run all stages of a commit's line, or the remaining ones; an equal request resumes the same run.

    Args:
        repo: Folder of line.toml, in a git repository.
        site: Where it runs.
        environ: For secret references and the user's configuration folder.
        commit: Commit, branch or tag; None is HEAD with the changes on disk.
        overrides: Such as `train.seed=2`; each changes the effective line, and so the run.
        again: Start another attempt if the newest has ended.
        strategy: Short for the override of `train.strategy`.
        start: First stage to run; earlier ones must be done.
        until: Last stage to run; the run stays open.
        target: Replaces `launch.target` of the site.
        origin: Where the commit comes from; None: a commit of this repository.
        observer: Gets all events of the run.
        open_launcher: Opens the launcher of gangs; None: that of the site's target. Drills wrap it.

    Raises:
        UsageError: No repository, no such commit or stage, or an open run of this request at another target.
        ConfigError: No line.toml, or an invalid one.
        CapacityError: Another process drives this run, or there is no capacity; it stays open.
        StorageError: The store is unavailable; the run can be resumed.
        GanglineError: The error that the run ended with, now or earlier, by its recorded exit code.
    """
    names = select_stages(start, until)
    request = resolve_request(repo, commit=commit, overrides=overrides, strategy=strategy, origin=origin)
    root, (ranks_at, _) = request.repository.root, targets.parse_target(target or site.launch.target)
    workspace = open_run_workspace(root, site=site, environ=environ, observer=observer, open_launcher=open_launcher)
    sealer, search = workspace.sealer(), environ.get(SEARCH)
    found = find_or_create_run(
        workspace.store, request, again=again, target=ranks_at, site=site, sealer=sealer, search=search
    )
    if target is not None:
        targets.require_same_target(found.record, ranks_at)
    if found.record.run.state == "ended":
        runs.unmark_open(workspace.store, found.record)
    if stage(found.record, "report").state in FINAL:
        return _report_end(workspace, found.record)
    with driving(workspace, found.record, request.line, earlier_runs=found.earlier_runs) as ctx:
        require_earlier_stages(ctx.record, start)
        ctx.observer.run_started(ctx.record)
        execute_stages(ctx, names)
        ctx.observer.run_ended(ctx.record)
    return raise_for_verdict(ctx.record)


def _report_end(workspace: RunWorkspace, record: Record) -> Record:
    """Result of a run that has ended, without taking its lease; what it read may be another thing now."""
    workspace.observer.run_started(record)
    if changed := changed_since(record):
        workspace.observer.note(
            f"changed since this run read it: {named(changed)}, which the line does not declare; gangline run --again"
            " trains on what is there now"
        )
    workspace.observer.run_ended(record)
    return raise_for_verdict(record)


def resolve_run(
    repo: Path,
    *,
    site: Site,
    environ: Mapping[str, str],
    commit: str | None = None,
    overrides: Sequence[str] = (),
    again: bool = False,
    pushed: bool = False,
    origin: CommitOrigin | None = None,
    observer: Observer | None = None,
) -> Record | str:
    """Find or create a run and do its resolve stage; a run that has ended is returned and is no error.

    Returns the reason, a string, if a push starts no run.

    Args:
        repo: Folder of line.toml, in a git repository.
        site: Where it runs.
        environ: For secret references and the user's configuration folder.
        commit: Commit, branch or tag; None is HEAD with the changes on disk.
        overrides: Such as `train.seed=2`; each changes the effective line, and so the run.
        again: Start another attempt if the newest has ended.
        pushed: The request comes from a push, so `[trigger]` of the line decides.
        origin: Where the commit comes from; None: a commit of this repository.
        observer: Gets all events of the run.

    Raises:
        UsageError: No repository, no such commit.
        ConfigError: No line.toml, or an invalid one.
        CapacityError: Another driver resolves this run now.
        StorageError: The store is unavailable.
    """
    request = resolve_request(repo, commit=commit, overrides=overrides, strategy=None, origin=origin)
    ranks_at, _ = targets.parse_target(site.launch.target)
    workspace = open_run_workspace(request.repository.root, site=site, environ=environ, observer=observer)
    if pushed and (reason := refusal(workspace.store, request)):
        return reason
    found = find_or_create_run(
        workspace.store, request, again=again, target=ranks_at, site=site, sealer=workspace.sealer()
    )
    if found.record.run.state == "ended":
        runs.unmark_open(workspace.store, found.record)
        return found.record
    if stage(found.record, "resolve").state in FINAL:
        return found.record
    with driving(workspace, found.record, request.line, earlier_runs=found.earlier_runs) as ctx:
        ctx.observer.run_started(ctx.record)
        return execute_stages(ctx, ["resolve"])


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
    # a closed run answers instead of a stage that was cancelled, or that never began
    return raise_for_verdict(record) if info.state == "cancelled" or info.started is None else record


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
