"""One rehearsal in a run that trains: mark it as drilled, strike, watch, check, judge, record."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from gangline.errors import ConfigError
from gangline.launch.local.folder import GangFolder
from gangline.line import launchers, places, runs
from gangline.line.drill.aim import Aim, Wish
from gangline.line.drill.catalogue import demand_here
from gangline.line.drill.history import Aftermath, History, Strike, aftermath
from gangline.line.drill.invariants import invariants
from gangline.line.drill.judge import Held, Seen, judge, not_struck, was_saving, with_drill
from gangline.line.drill.rig import Rig
from gangline.line.drill.samples import Samples, count, with_redone
from gangline.line.drill.standing import half_listed, unsound
from gangline.line.drill.strike import NotStruckError, availability_of, describe_strike, strike, watch
from gangline.line.registry.keys import signing_key, trusted_keys
from gangline.line.seal import Sealer
from gangline.line.trust import checkpoint_owner
from gangline.spec.marks import UNDER_WAY
from gangline.spec.plan import Plan
from gangline.spec.record import Drill, Record
from gangline.spec.site import Site
from gangline.storage.blobs import get_blob
from gangline.storage.protocol import ObjectStore

LOOK_SECONDS = 1.0


@dataclass(frozen=True, kw_only=True)
class Desk:
    """One call's surroundings."""

    repo: Path
    site: Site
    environ: Mapping[str, str]
    store: ObjectStore
    tell: Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Done:
    """A strike and what followed; or why nothing was struck."""

    home: Path = Path()
    """Of the gang that was struck."""
    aim: Aim | None = None
    strike: Strike | None = None
    after: Aftermath | None = None
    why_not: str = ""
    interval: int = 0
    batch: int = 0
    """Samples of a step."""
    standing: tuple[str, ...] = ()
    """Checkpoints that were listed while it lasted, and not whole."""


def rehearse(desk: Desk, wish: Wish, record: Record, rig: Rig) -> Done:
    """Mark the run as drilled, strike, watch."""
    record = runs.find_run(desk.store, record.run.id)
    if record.plan is None or record.gang is None:
        raise ConfigError(f"run {record.run.id} has no gang yet; try again once it trains")
    demand_here(wish.kind.name, record.run.target)
    plan = Plan.from_json(get_blob(desk.store, record.plan.key))
    aim = wish.aim(plan)
    home = launchers.gangs_root(desk.repo) / record.gang.name
    mark = not_struck(wish.kind, UNDER_WAY, seed=wish.seed)
    runs.records_of(desk.store, record, Sealer.of(desk.site, desk.environ)).change(lambda each: with_drill(each, mark))
    try:
        struck = strike(home, aim, rig=rig, plan=plan)
    except NotStruckError as error:
        return Done(why_not=str(error))
    desk.tell(f"{describe_strike(aim, struck):<56} row {wish.kind.row}")
    looks = _Looks(desk, record) if wish.kind.rig == "store" else None
    after = watch(home, aim, struck, desk.tell, look=looks)
    return Done(
        home=home, aim=aim, strike=struck, after=after, interval=plan.checkpoint.every, batch=plan.global_batch,
        standing=looks.found if looks else (),
    )  # fmt: skip


class _Looks:
    """Looks at what is listed while a store is in trouble, once a second."""

    def __init__(self, desk: Desk, record: Record) -> None:
        self._store, self._prefix = desk.store, f"{record.gang_prefix}/checkpoints"
        self._key = _checkpoint_key(desk, record)
        self._next = 0.0
        self.found: tuple[str, ...] = ()

    def __call__(self) -> None:
        if time.monotonic() >= self._next:
            self.found = tuple(dict.fromkeys((*self.found, *half_listed(self._store, self._prefix, self._key))))
            self._next = time.monotonic() + LOOK_SECONDS


def settle(desk: Desk, wish: Wish, record: Record, done: Done) -> tuple[Record, Drill]:
    """Check the invariants and what stands in the store, judge, and put the result in the place of the mark."""
    if done.strike is None:
        found = not_struck(wish.kind, done.why_not, seed=wish.seed)
    else:
        found = _judge(desk, wish, record, done)
    record = runs.records_of(desk.store, record, Sealer.of(desk.site, desk.environ)).change(
        lambda each: with_drill(_unmarked(each, wish), found)
    )
    return record, found


def _judge(desk: Desk, wish: Wish, record: Record, done: Done) -> Drill:
    """By what stands in the files now: a run of the drill's own has ended, and tells of its whole training."""
    assert done.aim is not None, "what struck was aimed"
    assert done.strike is not None, "it struck"
    history, struck = History.read(GangFolder(done.home).inside), done.strike
    after = aftermath(history, struck)
    felt = availability_of(done.aim, history, struck)
    if felt is not None and felt.met_step is None:
        why = f"no save was due in the {done.aim.seconds:g} s that it lasted; --seconds with more, or another --step"
        return not_struck(wish.kind, why, seed=wish.seed)
    samples = with_redone(count(history, batch=done.batch), steps=after.lost_steps or 0, batch=done.batch)
    held = _check(desk, record)
    if wish.kind.stalls or struck.ends is not None:
        _tell_loss(desk.tell, record, after, done.interval)
    desk.tell(describe_samples(samples))
    desk.tell("check    " + "  ".join(f"{each.name} {each.state}" for each in held))
    standing = (
        *done.standing,
        *unsound(desk.store, f"{record.gang_prefix}/checkpoints", _checkpoint_key(desk, record)),
    )
    seen = Seen(invariants=held, samples=samples, felt=felt, standing=tuple(dict.fromkeys(standing)))
    return judge(wish.kind, struck, after, seen, interval=done.interval, seed=wish.seed)


def _checkpoint_key(desk: Desk, record: Record) -> bytes:
    return signing_key(desk.site, desk.environ).checkpoint_key(checkpoint_owner(record))


def _unmarked(record: Record, wish: Wish) -> Record:
    """Without the mark that the drill was under way."""
    mark = not_struck(wish.kind, UNDER_WAY, seed=wish.seed)
    return replace(record, drills=tuple(each for each in record.drills if each != mark))


def _check(desk: Desk, record: Record) -> tuple[Held, ...]:
    assert record.gang is not None, record.run.id
    secrets = [_checkpoint_key(desk, record)]
    credentials = places.store_credentials(desk.site, desk.environ)
    secrets += [part.encode() for part in (credentials or "").split(":")[1:]]
    return invariants(
        record, home=GangFolder(launchers.gangs_root(desk.repo) / record.gang.name).inside, store=desk.store,
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


def describe_samples(samples: Samples) -> str:
    """What became of the samples: every one counts once, whatever was done again."""
    said = f"samples  {samples.lost} lost, {samples.twice} taken twice"
    said += f", {samples.again} done again" if samples.again else ""
    said += f", {samples.left_out} left out on purpose" if samples.left_out else ""
    said += f", {samples.unknown} unknown: who took them died before it told" if samples.unknown else ""
    return (
        said if samples.counted else f"{said}    (steps x train.global_batch: a program of its own reports no samples)"
    )
