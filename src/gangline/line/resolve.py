"""The run of a request, for drivers that then call its stages: a new one, or the one that there is, in any state."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from gangline.line import runs, targets
from gangline.line.birth import find_or_bear
from gangline.line.drive import drive
from gangline.line.driver import driving, open_desk
from gangline.line.observer import Observer
from gangline.line.question import Origin, ask
from gangline.line.states import FINAL, stage
from gangline.line.trigger import refusal
from gangline.spec.record import Record
from gangline.spec.site import Site


def resolve_run(
    repo: Path,
    *,
    site: Site,
    environ: Mapping[str, str],
    commit: str | None = None,
    overrides: Sequence[str] = (),
    again: bool = False,
    pushed: bool = False,
    origin: Origin | None = None,
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
    question = ask(repo, commit=commit, overrides=overrides, strategy=None, origin=origin)
    ranks_at, _ = targets.meaning(site.launch.target)
    desk = open_desk(question.repository.root, site=site, environ=environ, observer=observer)
    if pushed and (why := refusal(desk.store, question)):
        return why
    found = find_or_bear(desk.store, question, again=again, target=ranks_at, sealer=desk.sealer())
    if found.record.run.state == "ended":
        runs.unmark_open(desk.store, found.record)
        return found.record
    if stage(found.record, "resolve").state in FINAL:
        return found.record
    with driving(desk, found.record, question.line, past=found.past) as ctx:
        ctx.observer.run_started(ctx.record)
        return drive(ctx, ["resolve"])
