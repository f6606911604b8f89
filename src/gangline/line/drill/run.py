"""`gangline drill`: from a name to a judged, recorded rehearsal, in a run of its own or in one that trains now."""

import random
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from gangline.errors import ConfigError, GanglineError, UsageError
from gangline.launch.protocol import GangEvent
from gangline.line import launchers, places, runs
from gangline.line.cancel import cancel_run
from gangline.line.drill.catalogue import Kind, choose
from gangline.line.drill.history import Aftermath, Strike
from gangline.line.drill.invariants import invariants
from gangline.line.drill.judge import Held, judge, not_struck, was_saving, with_drill
from gangline.line.drill.strike import Aim, NotStruckError, check_aim, describe_strike, strike, watch
from gangline.line.observer import Silent
from gangline.line.question import ask
from gangline.line.registry.keys import signing_key, trusted_keys
from gangline.line.run import run_line
from gangline.spec.plan import Plan
from gangline.spec.record import Drill, Record, StageInfo
from gangline.spec.site import Site
from gangline.storage.blobs import get_blob
from gangline.storage.protocol import ObjectStore

EXIT_CODES: dict[Literal["held", "broken", "not_struck"], int] = {"held": 0, "broken": 60, "not_struck": 10}
DEFAULT_FREEZE_SECONDS = 5.0


@dataclass(frozen=True, kw_only=True, slots=True)
class DrillReport:
    run: str
    drill: Drill
    """As it stands in the record."""
    lines: tuple[str, ...]
    """What was told."""
    replay: str
    """The command that does the same again."""

    @property
    def exit_code(self) -> int:
        return EXIT_CODES[self.drill.result]


@dataclass(frozen=True, kw_only=True)
class _Desk:
    """One call's surroundings."""

    repo: Path
    site: Site
    environ: Mapping[str, str]
    store: ObjectStore
    tell: Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class _Wish:
    """What was asked for; None is left to the seed."""

    kind: Kind
    rank: int | None
    step: int | None
    seconds: float | None
    seed: int

    def aim(self, plan: Plan) -> Aim:
        """Rank and step that the seed chooses, away from the very start and end."""
        chance = random.Random(self.seed)  # noqa: S311  # a replay must strike alike
        rank = self.rank if self.rank is not None else chance.randrange(plan.world_size)
        step = self.step if self.step is not None else chance.randint(max(1, plan.steps // 3), max(1, plan.steps // 2))
        seconds = DEFAULT_FREEZE_SECONDS if self.seconds is None else self.seconds
        return Aim(kind=self.kind, rank=rank, step=step, seconds=seconds)


def drill(
    name: str,
    *,
    repo: Path,
    site: Site,
    environ: Mapping[str, str],
    run: str | None = None,
    rank: int | None = None,
    step: int | None = None,
    seconds: float | None = None,
    seed: int = 1,
    tell: Callable[[str], None] = print,
) -> DrillReport:
    """Rehearse `name`, tell each line when it is known, and write the result into the run's record.

    Args:
        name: One of `catalogue.DRILLS`.
        repo: Folder of the line.
        site: Must allow the drill.
        environ: For secret references.
        run: One that trains on this machine now; None: a fresh one of HEAD, driven to its end.
        rank: Whom it strikes.
        step: When: after this step.
        seconds: How long a lasting fault lasts.
        seed: Chooses what is left open.
        tell: Gets every line.

    Raises:
        ConfigError: The drill is refused.
        UsageError: No such run, rank or step.
        GanglineError: What kept a fresh run from training.
    """
    lines: list[str] = []

    def say(line: str) -> None:
        lines.append(line)
        tell(line)

    wish = _Wish(kind=choose(name, site), rank=rank, step=step, seconds=seconds, seed=seed)
    desk = _Desk(repo=repo, site=site, environ=environ, store=runs.open_site_store(repo, site, environ), tell=say)
    record, found = _in_own_run(desk, wish) if run is None else _in_run(desk, wish, run)
    again = _replay(found, wish, run)
    say(_result_line(found, again))
    return DrillReport(run=record.run.id, drill=found, lines=tuple(lines), replay=again)


def _in_run(desk: _Desk, wish: _Wish, run: str) -> tuple[Record, Drill]:
    """Strike a run that somebody drives."""
    record = runs.find_run(desk.store, run)
    if record.run.state == "ended" or record.gang is None:
        raise ConfigError(f"run {record.run.id} does not train now; without --run the drill starts one of its own")
    done = _rehearse(desk, wish, record)
    return _settle(desk, wish, runs.find_run(desk.store, record.run.id), done)


def _in_own_run(desk: _Desk, wish: _Wish) -> tuple[Record, Drill]:
    """Start a run for this drill alone, strike it from a thread, and drive it to its end here: Ctrl-C stops it."""
    begun: Future[Record | None] = Future()
    observer = _Watcher(begun, desk.tell)
    with ThreadPoolExecutor(1, thread_name_prefix="drill") as pool:
        struck = pool.submit(_when_begun, desk, wish, begun)
        ended: GanglineError | None = None
        try:
            run_line(
                desk.repo, site=desk.site, environ=desk.environ, overrides=_overrides(desk, wish), again=True,
                observer=observer,
            )  # fmt: skip
        except GanglineError as error:
            ended = error
        finally:
            observer.over()
        done = struck.result()
    if done is None:
        raise ended or UsageError("the run was done before anything could be struck; run the drill again")
    if ended is not None:
        desk.tell(f"run      {ended}")
    return _settle(desk, wish, runs.find_run(desk.store, observer.run), done)


class _Watcher(Silent):
    """Tells the striking thread of the run once its gang starts, and the person what happens until then."""

    def __init__(self, begun: "Future[Record | None]", tell: Callable[[str], None]) -> None:
        self._begun = begun
        self._tell = tell
        self._record: Record | None = None
        self.run = ""

    def run_started(self, record: Record) -> None:
        self._record, self.run = record, record.run.id
        self._tell(f"run      {record.run.id}, a fresh one for this drill")

    def stage_ended(self, name: str, info: StageInfo) -> None:
        if name in {"plan", "train"}:
            self._tell(f"{name:<9}{info.message}")

    def progress(self, stage: str, event: GangEvent) -> None:  # noqa: ARG002  # the protocol's name for it
        if stage == "train" and not self._begun.done():
            self._begun.set_result(self._record)

    def over(self) -> None:
        """The run has ended, perhaps before it trained."""
        if not self._begun.done():
            self._begun.set_result(None)


@dataclass(frozen=True, kw_only=True)
class _Done:
    """A strike and what followed; or why nothing was struck."""

    strike: Strike | None = None
    after: Aftermath | None = None
    why_not: str = ""
    interval: int = 0


def _when_begun(desk: _Desk, wish: _Wish, begun: "Future[Record | None]") -> _Done | None:
    """In a thread: strike once the run trains; a run that cannot be struck is stopped, it was made for that alone."""
    record = begun.result()
    if record is None:
        return None
    try:
        return _rehearse(desk, wish, record)
    except GanglineError:
        cancel_run(desk.repo, record.run.id, site=desk.site, environ=desk.environ, reason="the drill was refused")
        raise


def _rehearse(desk: _Desk, wish: _Wish, record: Record) -> _Done:
    """Mark the run as drilled, strike, watch."""
    record = runs.find_run(desk.store, record.run.id)
    if record.plan is None or record.gang is None:
        raise ConfigError(f"run {record.run.id} has no gang yet; try again once it trains")
    plan = Plan.from_json(get_blob(desk.store, record.plan.key))
    aim = wish.aim(plan)
    check_aim(aim, plan)
    home = launchers.gangs_root(desk.repo) / record.gang.name
    mark = not_struck(wish.kind, "under way", seed=wish.seed)
    runs.records_of(desk.store, record).change(lambda each: with_drill(each, mark))
    try:
        struck = strike(home, aim)
    except NotStruckError as error:
        return _Done(why_not=str(error))
    desk.tell(f"{describe_strike(struck):<56} row {wish.kind.row}")
    after = watch(home, struck, desk.tell, wish.kind.target)
    return _Done(strike=struck, after=after, interval=plan.checkpoint.every)


def _settle(desk: _Desk, wish: _Wish, record: Record, done: _Done) -> tuple[Record, Drill]:
    """Check the invariants, judge, and put the result in the place of the mark."""
    if done.strike is None or done.after is None:
        found = not_struck(wish.kind, done.why_not, seed=wish.seed)
    else:
        held = _check(desk, record)
        _tell_loss(desk.tell, record, done.after, done.interval)
        desk.tell("check    " + "  ".join(f"{each.name} {each.state}" for each in held))
        found = judge(wish.kind, done.strike, done.after, held, interval=done.interval, seed=wish.seed)
    record = runs.records_of(desk.store, record).change(lambda each: with_drill(_unmarked(each, wish), found))
    return record, found


def _unmarked(record: Record, wish: _Wish) -> Record:
    """Without the mark that the drill was under way."""
    mark = not_struck(wish.kind, "under way", seed=wish.seed)
    return replace(record, drills=tuple(each for each in record.drills if each != mark))


def _check(desk: _Desk, record: Record) -> tuple[Held, ...]:
    assert record.gang is not None, record.run.id
    secrets = [signing_key(desk.site, desk.environ).checkpoint_key(record.run.project)]
    credentials = places.store_credentials(desk.site, desk.environ)
    secrets += [part.encode() for part in (credentials or "").split(":")[1:]]
    return invariants(
        record, home=launchers.gangs_root(desk.repo) / record.gang.name, store=desk.store,
        model=str(record.inputs.values.get("publish.model") or record.run.project),
        keys=trusted_keys(desk.site, desk.environ), secrets=secrets, now=time.time(),
    )  # fmt: skip


def _overrides(desk: _Desk, wish: _Wish) -> tuple[str, ...]:
    """A run of the same program and plan with nothing but the training in it; no earlier run can answer for it."""
    steps = ask(desk.repo, commit=None, overrides=(), strategy=None).line.train.steps
    if wish.step is not None and wish.step >= steps:
        raise UsageError(f"--step {wish.step}: the run has {steps} steps; strike between 1 and {steps - 1}")
    alone = f'train.env.DRILL="{wish.kind.name}-{wish.seed}"'
    return ("evaluate.seeds=1", 'prove.plan="off"', "prove.replay_steps=0", alone)


def _tell_loss(tell: Callable[[str], None], record: Record, after: Aftermath, interval: int) -> None:
    if after.lost_steps is None:
        return
    held = record.plan.world_size if record.plan else 1
    spent = f", {after.lost_seconds * held:.1f} rank-seconds" if after.lost_seconds is not None else ""
    since = f" since checkpoint step-{after.checkpoint_step:08d}" if after.checkpoint_step else ""
    saving = ", the next save was under way" if was_saving(after, interval) else ""
    tell(f"lost     {after.lost_steps} steps{since}{spent}{saving}    target <= 1 interval of {interval}")


def _replay(found: Drill, wish: _Wish, run: str | None) -> str:
    words = [f"gangline drill {found.name}"]
    words += [f"--run {run}"] if run else []
    words += [f"--{key} {value}" for key, value in found.arguments.items() if key in {"rank", "step", "seconds"}]
    return " ".join([*words, f"--seed {wish.seed}"])


def _result_line(found: Drill, again: str) -> str:
    said = {"held": "HELD", "broken": f"BROKEN {found.reason}", "not_struck": f"NOT STRUCK {found.reason}"}
    return f"result   {said[found.result]}    replay: {again}"
