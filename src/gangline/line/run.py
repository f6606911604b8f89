"""One run of one line: asked for, found or born, driven under a lease. Every driver comes through here."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from gangline.errors import StillRunning, UsageError, error_for
from gangline.line import lease, runs, targets
from gangline.line.birth import Found, find_or_bear
from gangline.line.context import Context
from gangline.line.drive import drive, finish, perform
from gangline.line.driver import Desk, DriverKind, driving, open_desk
from gangline.line.launchers import FindOwner
from gangline.line.observer import Observer
from gangline.line.question import ask
from gangline.line.states import FINAL, GOOD, stage
from gangline.spec.codec import from_json
from gangline.spec.line import Line
from gangline.spec.record import STAGES, Record
from gangline.spec.site import Site
from gangline.storage.blobs import get_blob
from gangline.storage.protocol import ObjectStore


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
    observer: Observer | None = None,
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
        observer: Told of everything.

    Raises:
        UsageError: No repository, no such commit or stage, or an open run of this question at another target.
        ConfigError: No line.toml, or one that does not hold.
        CapacityError: Somebody else drives this run, or there is no room; it stays open.
        StorageError: The store is away; what was written stays, the run resumes.
        GanglineError: What the run ended with, now or earlier, by its recorded exit code.
    """
    names = _chosen(start, until)
    question = ask(repo, commit=commit, overrides=overrides, strategy=strategy)
    root = question.repository.root
    ranks_at, _ = targets.meaning(target or site.launch.target)
    desk = open_desk(root, site=site, environ=environ, observer=observer)
    found = find_or_bear(desk.store, question, again=again, target=ranks_at)
    if target is not None:
        targets.demand_same(found.record, ranks_at)
    if found.record.run.state == "ended":
        runs.unmark_open(desk.store, found.record)
    if stage(found.record, "report").state in FINAL:
        return _tell_end(desk, found.record)
    with driving(desk, found, question.line) as ctx:
        _check_start(ctx.record, start)
        ctx.observer.run_started(ctx.record)
        drive(ctx, names)
        ctx.observer.run_ended(ctx.record)
    return outcome(ctx.record)


def run_stage(
    repo: Path,
    name: str,
    run: str,
    *,
    site: Site,
    environ: Mapping[str, str],
    observer: Observer | None = None,
    max_seconds: float | None = None,
    kind: DriverKind = "stage",
    url: str | None = None,
    find_owner: FindOwner | None = None,
) -> Record:
    """One stage of a run that `resolve` made; one that has ended answers what it ended with.

    Args:
        repo: Folder of the line.
        name: One of the ten.
        run: Run id, or the beginning of one.
        site: Where it runs.
        environ: For secret references.
        observer: Told of everything.
        max_seconds: Wait at most so long for another driver of this run.
        kind: Who calls stage by stage.
        url: Its page, for the record.
        find_owner: With whose end gangs go that this stage starts on a cluster.

    Raises:
        UsageError: No such run or stage, or an earlier stage is not done.
        StillRunning: Another driver is at work and was not done in time.
        GanglineError: What the stage ended with, by its recorded exit code.
    """
    _chosen(name, name)
    desk = open_desk(repo, site=site, environ=environ, observer=observer)
    record = runs.find_run(desk.store, run)
    if stage(record, name).state not in FINAL:
        _check_start(record, None if name == "report" else name)
        with _patiently(desk, record, max_seconds, kind=kind, url=url, find_owner=find_owner) as ctx:
            ctx.observer.run_started(ctx.record)
            if name == "report":
                finish(ctx)
            elif stage(ctx.record, name).state not in FINAL:
                perform(ctx, name)
            record = ctx.record
    info = stage(record, name)
    if info.exit:
        raise error_for(info.exit)(info.message)
    return record


@contextmanager
def _patiently(
    desk: Desk,
    record: Record,
    max_seconds: float | None,
    *,
    kind: DriverKind,
    url: str | None,
    find_owner: FindOwner | None,
) -> Iterator[Context]:
    """As `driving`, but wait up to `max_seconds` while another driver is at work."""
    deadline = time.monotonic() + (max_seconds or 0.0)
    while True:
        try:
            line = _line_of(desk.store, record)
            found = Found(record, is_new=False, past=None)
            with driving(desk, found, line, kind=kind, url=url, find_owner=find_owner) as ctx:
                yield ctx
                return
        except lease.HeldError as error:
            if max_seconds is None:
                raise
            if time.monotonic() >= deadline:
                raise StillRunning(str(error)) from error
        time.sleep(0.5)


def _line_of(store: ObjectStore, record: Record) -> Line:
    """The effective line, as the resolve stage kept it."""
    key = stage(record, "resolve").outputs.get("line")
    if key is None:
        raise UsageError(f"{record.run.id} was not resolved to its end; gangline run finishes that")
    return from_json(Line, get_blob(store, str(key)))


def _chosen(start: str | None, until: str | None) -> Sequence[str]:
    for name in (start, until):
        if name is not None and name not in STAGES:
            raise UsageError(f"wanted a stage, found {name!r}; stages are {', '.join(STAGES)}")
    first = STAGES.index(start) if start else 0
    last = STAGES.index(until) if until else len(STAGES) - 1
    if last < first:
        raise UsageError(f"wanted stages in order, found --from {start} --until {until}; {start} comes after {until}")
    return STAGES[first : last + 1]


def _check_start(record: Record, start: str | None) -> None:
    for name in STAGES[: STAGES.index(start)] if start else ():
        state = stage(record, name).state
        if state not in GOOD:
            raise UsageError(f"{record.run.id}: {start} needs {name}, which is {state}; gangline run does both")


def _tell_end(desk: Desk, record: Record) -> Record:
    """Answer for a run that is over: nothing is done, so no lease is taken."""
    desk.observer.run_started(record)
    desk.observer.run_ended(record)
    return outcome(record)


def outcome(record: Record) -> Record:
    """The record of a run that passed or is open; else the error that it ended with."""
    if record.run.exit_code:
        raise error_for(record.run.exit_code)(record.run.reason or f"{record.run.id} {record.run.verdict}")
    return record
