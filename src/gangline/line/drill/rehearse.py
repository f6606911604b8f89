"""One rehearsal in a run that trains: mark it as drilled, strike, watch, check, judge, record."""

import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from gangline.errors import ConfigError
from gangline.line import launchers, places, runs
from gangline.line.drill.catalogue import Kind
from gangline.line.drill.history import Aftermath, Strike
from gangline.line.drill.invariants import invariants
from gangline.line.drill.judge import Held, judge, not_struck, was_saving, with_drill
from gangline.line.drill.strike import Aim, NotStruckError, check_aim, describe_strike, strike, watch
from gangline.line.registry.keys import signing_key, trusted_keys
from gangline.line.registry.rules import UNDER_WAY
from gangline.spec.plan import Plan
from gangline.spec.record import Drill, Record
from gangline.spec.site import Site
from gangline.storage.blobs import get_blob
from gangline.storage.protocol import ObjectStore

DEFAULT_FREEZE_SECONDS = 5.0


@dataclass(frozen=True, kw_only=True)
class Desk:
    """One call's surroundings."""

    repo: Path
    site: Site
    environ: Mapping[str, str]
    store: ObjectStore
    tell: Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Wish:
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


@dataclass(frozen=True, kw_only=True)
class Done:
    """A strike and what followed; or why nothing was struck."""

    strike: Strike | None = None
    after: Aftermath | None = None
    why_not: str = ""
    interval: int = 0


def rehearse(desk: Desk, wish: Wish, record: Record) -> Done:
    """Mark the run as drilled, strike, watch."""
    record = runs.find_run(desk.store, record.run.id)
    if record.plan is None or record.gang is None:
        raise ConfigError(f"run {record.run.id} has no gang yet; try again once it trains")
    if record.run.target != "local":
        raise ConfigError(f"drills strike processes of this machine; the ranks of {record.run.id} are elsewhere")
    plan = Plan.from_json(get_blob(desk.store, record.plan.key))
    aim = wish.aim(plan)
    check_aim(aim, plan)
    home = launchers.gangs_root(desk.repo) / record.gang.name
    mark = not_struck(wish.kind, UNDER_WAY, seed=wish.seed)
    runs.records_of(desk.store, record).change(lambda each: with_drill(each, mark))
    try:
        struck = strike(home, aim)
    except NotStruckError as error:
        return Done(why_not=str(error))
    desk.tell(f"{describe_strike(struck):<56} row {wish.kind.row}")
    after = watch(home, struck, desk.tell, wish.kind.target)
    return Done(strike=struck, after=after, interval=plan.checkpoint.every)


def settle(desk: Desk, wish: Wish, record: Record, done: Done) -> tuple[Record, Drill]:
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


def _unmarked(record: Record, wish: Wish) -> Record:
    """Without the mark that the drill was under way."""
    mark = not_struck(wish.kind, UNDER_WAY, seed=wish.seed)
    return replace(record, drills=tuple(each for each in record.drills if each != mark))


def _check(desk: Desk, record: Record) -> tuple[Held, ...]:
    assert record.gang is not None, record.run.id
    secrets = [signing_key(desk.site, desk.environ).checkpoint_key(record.run.project)]
    credentials = places.store_credentials(desk.site, desk.environ)
    secrets += [part.encode() for part in (credentials or "").split(":")[1:]]
    return invariants(
        record, home=launchers.gangs_root(desk.repo) / record.gang.name, store=desk.store,
        model=str(record.inputs.values.get("publish.model") or record.run.project),
        keys=trusted_keys(desk.site, desk.environ), secrets=secrets, now=time.time(),
    )  # fmt: skip


def _tell_loss(tell: Callable[[str], None], record: Record, after: Aftermath, interval: int) -> None:
    if after.lost_steps is None:
        return
    held = record.plan.world_size if record.plan else 1
    spent = f", {after.lost_seconds * held:.1f} rank-seconds" if after.lost_seconds is not None else ""
    since = f" since checkpoint step-{after.checkpoint_step:08d}" if after.checkpoint_step else ""
    saving = ", the next save was under way" if was_saving(after, interval) else ""
    tell(f"lost     {after.lost_steps} steps{since}{spent}{saving}    target <= 1 interval of {interval}")
