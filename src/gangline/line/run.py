"""One run of one line: asked for, found or born, driven under a lease. Every driver comes through here."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypedDict

from gangline.line import runs, targets
from gangline.line.birth import find_or_bear
from gangline.line.drive import drive
from gangline.line.driver import Desk, driving, open_desk
from gangline.line.launchers import OpenLauncher
from gangline.line.observer import Observer
from gangline.line.order import chosen, demand_earlier
from gangline.line.question import Origin, ask
from gangline.line.states import FINAL, outcome, stage
from gangline.spec.record import Record
from gangline.spec.site import Site


class Asked(TypedDict, total=False):
    """What `run_line` is asked of a commit, in its own words, for those who pass it on."""

    commit: str | None
    overrides: Sequence[str]
    again: bool
    strategy: str | None
    start: str | None
    until: str | None
    origin: Origin | None


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
    origin: Origin | None = None,
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
    names = chosen(start, until)
    question = ask(repo, commit=commit, overrides=overrides, strategy=strategy, origin=origin)
    root = question.repository.root
    ranks_at, _ = targets.meaning(target or site.launch.target)
    desk = open_desk(root, site=site, environ=environ, observer=observer, open_launcher=open_launcher)
    found = find_or_bear(desk.store, question, again=again, target=ranks_at, sealer=desk.sealer())
    if target is not None:
        targets.demand_same(found.record, ranks_at)
    if found.record.run.state == "ended":
        runs.unmark_open(desk.store, found.record)
    if stage(found.record, "report").state in FINAL:
        return _tell_end(desk, found.record)
    with driving(desk, found.record, question.line, past=found.past) as ctx:
        demand_earlier(ctx.record, start)
        ctx.observer.run_started(ctx.record)
        drive(ctx, names)
        ctx.observer.run_ended(ctx.record)
    return outcome(ctx.record)


def _tell_end(desk: Desk, record: Record) -> Record:
    """Answer for a run that is over: nothing is done, so no lease is taken."""
    desk.observer.run_started(record)
    desk.observer.run_ended(record)
    return outcome(record)
