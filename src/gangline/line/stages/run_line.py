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
from gangline.line.run.create import find_or_create_run
from gangline.line.run.driver import RunWorkspace, driving, open_run_workspace
from gangline.line.stages.executor import execute_stages, require_earlier_stages, select_stages
from gangline.spec.config.site import Site
from gangline.spec.record import Record
from gangline.spec.run_flags import FINAL, stage


class RunArguments(TypedDict, total=False):
    """What `run_line` is asked of a commit, in its own words, for those who pass it on."""

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
    """All stages of a commit's line, or the rest of them; the same question finds the same run.

    Args:
        repo: Folder of line.toml, in a git repository.
        site: Where it runs.
        environ: For secret references and the user's configuration folder.
        commit: Any name git knows; None: HEAD, with what was changed on disk.
        overrides: `train.seed=2`, each changes the effective line and so the run.
        again: The next attempt, where the newest has ended.
        strategy: Short for the override of `train.strategy`.
        start: First stage to run; earlier ones must be done.
        until: Last stage to run; the run stays open.
        target: Instead of the site's `launch.target`.
        origin: Where the commit comes from; None: as git says, our own.
        observer: Told of everything.
        open_launcher: Of what starts the gangs; None: of the site's target. A drill changes gangs on their way.

    Raises:
        UsageError: No repository, no such commit or stage, or an open run of this question at another target.
        ConfigError: No line.toml, or one that does not hold.
        CapacityError: Somebody else drives this run, or there is no room; it stays open.
        StorageError: The store is away; what was written stays, the run resumes.
        GanglineError: What the run ended with, now or earlier, by its recorded exit code.
    """
    names = select_stages(start, until)
    question = resolve_request(repo, commit=commit, overrides=overrides, strategy=strategy, origin=origin)
    root = question.repository.root
    ranks_at, _ = targets.parse_target(target or site.launch.target)
    desk = open_run_workspace(root, site=site, environ=environ, observer=observer, open_launcher=open_launcher)
    found = find_or_create_run(desk.store, question, again=again, target=ranks_at, sealer=desk.sealer())
    if target is not None:
        targets.require_same_target(found.record, ranks_at)
    if found.record.run.state == "ended":
        runs.unmark_open(desk.store, found.record)
    if stage(found.record, "report").state in FINAL:
        return _tell_end(desk, found.record)
    with driving(desk, found.record, question.line, earlier_runs=found.earlier_runs) as ctx:
        require_earlier_stages(ctx.record, start)
        ctx.observer.run_started(ctx.record)
        execute_stages(ctx, names)
        ctx.observer.run_ended(ctx.record)
    return raise_for_verdict(ctx.record)


def _tell_end(desk: RunWorkspace, record: Record) -> Record:
    """Answer for a run that is over: nothing is done, so no lease is taken."""
    desk.observer.run_started(record)
    desk.observer.run_ended(record)
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
    """The run with its resolve stage done; one that has ended is no error: its stages answer what they ended with.
    A string: why this push starts none.

    Args:
        repo: Folder of line.toml, in a git repository.
        site: Where it runs.
        environ: For secret references and the user's configuration folder.
        commit: Any name git knows; None: HEAD, with what was changed on disk.
        overrides: `train.seed=2`, each changes the effective line and so the run.
        again: The next attempt, where the newest has ended.
        pushed: A push, no person, asks: a run starts only where `[trigger]` of the line says so.
        origin: Where the commit comes from; None: as git says, our own.
        observer: Told of everything.

    Raises:
        UsageError: No repository, no such commit.
        ConfigError: No line.toml, or one that does not hold.
        CapacityError: Another driver resolves this run now.
        StorageError: The store is away.
    """
    question = resolve_request(repo, commit=commit, overrides=overrides, strategy=None, origin=origin)
    ranks_at, _ = targets.parse_target(site.launch.target)
    desk = open_run_workspace(question.repository.root, site=site, environ=environ, observer=observer)
    if pushed and (why := refusal(desk.store, question)):
        return why
    found = find_or_create_run(desk.store, question, again=again, target=ranks_at, sealer=desk.sealer())
    if found.record.run.state == "ended":
        runs.unmark_open(desk.store, found.record)
        return found.record
    if stage(found.record, "resolve").state in FINAL:
        return found.record
    with driving(desk, found.record, question.line, earlier_runs=found.earlier_runs) as ctx:
        ctx.observer.run_started(ctx.record)
        return execute_stages(ctx, ["resolve"])
