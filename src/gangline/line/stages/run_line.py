"""Entry points for a whole run: `run_line` drives its stages under a lease, `resolve_run` only finds or creates it."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypedDict

from gangline.line.gangs.launchers import OpenLauncher
from gangline.line.record import runs
from gangline.line.record.observer import Observer
from gangline.line.record.states import raise_for_verdict
from gangline.line.request import targets
from gangline.line.request.run_request import CommitOrigin, resolve_request
from gangline.line.request.trigger import refusal
from gangline.line.results.undeclared_reads import changed_since, named
from gangline.line.run.create import find_or_create_run
from gangline.line.run.driver import RunWorkspace, driving, open_run_workspace
from gangline.line.stages.executor import execute_stages, require_earlier_stages, select_stages
from gangline.spec.config.site import Site
from gangline.spec.record import Record
from gangline.spec.run_flags import FINAL, SEARCH, stage


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
    run = find_or_create_run(
        workspace.store, request, again=again, target=ranks_at, site=site, sealer=sealer, search=search
    )
    if target is not None:
        targets.require_same_target(run.record, ranks_at)
    if run.record.run.state == "ended":
        runs.unmark_open(workspace.store, run.record)
    if stage(run.record, "report").state in FINAL:
        return _report_end(workspace, run.record)
    with driving(workspace, run.record, request.line, earlier_runs=run.earlier_runs) as ctx:
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
    run = find_or_create_run(
        workspace.store, request, again=again, target=ranks_at, site=site, sealer=workspace.sealer()
    )
    if run.record.run.state == "ended":
        runs.unmark_open(workspace.store, run.record)
        return run.record
    if stage(run.record, "resolve").state in FINAL:
        return run.record
    with driving(workspace, run.record, request.line, earlier_runs=run.earlier_runs) as ctx:
        ctx.observer.run_started(ctx.record)
        return execute_stages(ctx, ["resolve"])
