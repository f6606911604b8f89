"""Execution of one drill in a run that trains: mark, inject, watch, check, evaluate, record."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from gangline.drill.catalogue import require_local_target
from gangline.drill.evaluate import DrillObservations, InvariantResult, evaluate, not_struck, was_saving, with_drill
from gangline.drill.history import Aftermath, DrillHistory, Injection, aftermath
from gangline.drill.inject import NotInjectedError, availability_of, describe_injection, inject_fault, watch_recovery
from gangline.drill.invariants import invariants
from gangline.drill.sample_counts import SampleCounts, count_samples, with_redone_steps
from gangline.drill.setup import DrillSetup
from gangline.drill.store_check import incomplete_checkpoints, invalid_checkpoints
from gangline.drill.target import DrillRequest, DrillTarget
from gangline.errors import ConfigError
from gangline.launch.local.folder import GangFolder
from gangline.line.gangs import launchers
from gangline.line.record import runs
from gangline.line.record.store import RecordStore
from gangline.line.request.trust import checkpoint_owner
from gangline.signing.keys import signing_key, trusted_keys
from gangline.signing.record_seal import Sealer
from gangline.spec.config.site import Site
from gangline.spec.measurements import Drill
from gangline.spec.plan import Plan
from gangline.spec.record import Record
from gangline.spec.run_flags import UNDER_WAY
from gangline.storage import site_paths
from gangline.storage.objects.blobs import get_blob
from gangline.storage.objects.protocol import ObjectStore

LOOK_SECONDS = 1.0


@dataclass(frozen=True, kw_only=True)
class DrillContext:
    """One call's surroundings."""

    repo: Path
    site: Site
    environ: Mapping[str, str]
    store: ObjectStore
    tell: Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class DrillOutcome:
    """A strike and what followed; or why nothing was struck."""

    home: Path = Path()
    """Of the gang that was struck."""
    aim: DrillTarget | None = None
    strike: Injection | None = None
    after: Aftermath | None = None
    why_not: str = ""
    interval: int = 0
    batch: int = 0
    """Samples of a step."""
    standing: tuple[str, ...] = ()
    """Checkpoints that were listed while it lasted, and not whole."""


def execute_drill(desk: DrillContext, wish: DrillRequest, record: Record, rig: DrillSetup) -> DrillOutcome:
    """Mark the run as drilled, strike, watch."""
    record = runs.find_run(desk.store, record.run.id)
    if record.plan is None or record.gang is None:
        raise ConfigError(f"run {record.run.id} has no gang yet; try again once it trains")
    require_local_target(wish.kind.name, record.run.target)
    plan = Plan.from_json(get_blob(desk.store, record.plan.key))
    aim = wish.aim(plan)
    home = launchers.gangs_root(desk.repo) / record.gang.name
    mark = not_struck(wish.kind, UNDER_WAY, seed=wish.seed)
    RecordStore.of(desk.store, record, Sealer.of(desk.site, desk.environ)).change(lambda each: with_drill(each, mark))
    try:
        struck = inject_fault(home, aim, rig=rig, plan=plan)
    except NotInjectedError as error:
        return DrillOutcome(why_not=str(error))
    desk.tell(f"{describe_injection(aim, struck):<56} row {wish.kind.row}")
    looks = _CheckpointWatch(desk, record) if wish.kind.rig == "store" else None
    after = watch_recovery(home, aim, struck, desk.tell, look=looks)
    return DrillOutcome(
        home=home, aim=aim, strike=struck, after=after, interval=plan.checkpoint.every, batch=plan.global_batch,
        standing=looks.found if looks else (),
    )  # fmt: skip


class _CheckpointWatch:
    """Looks at what is listed while a store is in trouble, once a second."""

    def __init__(self, desk: DrillContext, record: Record) -> None:
        self._store, self._prefix = desk.store, f"{record.gang_prefix}/checkpoints"
        self._key = _checkpoint_key(desk, record)
        self._next = 0.0
        self.found: tuple[str, ...] = ()

    def __call__(self) -> None:
        if time.monotonic() >= self._next:
            self.found = tuple(
                dict.fromkeys((*self.found, *incomplete_checkpoints(self._store, self._prefix, self._key)))
            )
            self._next = time.monotonic() + LOOK_SECONDS


def record_result(desk: DrillContext, wish: DrillRequest, record: Record, done: DrillOutcome) -> tuple[Record, Drill]:
    """Check the invariants and what stands in the store, judge, and put the result in the place of the mark."""
    if done.strike is None:
        found = not_struck(wish.kind, done.why_not, seed=wish.seed)
    else:
        found = _evaluate(desk, wish, record, done)
    record = RecordStore.of(desk.store, record, Sealer.of(desk.site, desk.environ)).change(
        lambda each: with_drill(_unmarked(each, wish), found)
    )
    return record, found


def _evaluate(desk: DrillContext, wish: DrillRequest, record: Record, done: DrillOutcome) -> Drill:
    """By what stands in the files now: a run of the drill's own has ended, and tells of its whole training."""
    assert done.aim is not None, "what struck was aimed"
    assert done.strike is not None, "it struck"
    history, struck = DrillHistory.read(GangFolder(done.home).inside), done.strike
    after = aftermath(history, struck)
    felt = availability_of(done.aim, history, struck)
    if felt is not None and felt.met_step is None:
        why = f"no save was due in the {done.aim.seconds:g} s that it lasted; --seconds with more, or another --step"
        return not_struck(wish.kind, why, seed=wish.seed)
    samples = with_redone_steps(count_samples(history, batch=done.batch), steps=after.lost_steps or 0, batch=done.batch)
    held = _check(desk, record)
    if wish.kind.stalls or struck.ends is not None:
        _report_loss(desk.tell, record, after, done.interval)
    desk.tell(describe_samples(samples))
    desk.tell("check    " + "  ".join(f"{each.name} {each.state}" for each in held))
    standing = (
        *done.standing,
        *invalid_checkpoints(desk.store, f"{record.gang_prefix}/checkpoints", _checkpoint_key(desk, record)),
    )
    seen = DrillObservations(invariants=held, samples=samples, felt=felt, standing=tuple(dict.fromkeys(standing)))
    return evaluate(wish.kind, struck, after, seen, interval=done.interval, seed=wish.seed)


def _checkpoint_key(desk: DrillContext, record: Record) -> bytes:
    return signing_key(desk.site, desk.environ).checkpoint_key(checkpoint_owner(record))


def _unmarked(record: Record, wish: DrillRequest) -> Record:
    """Without the mark that the drill was under way."""
    mark = not_struck(wish.kind, UNDER_WAY, seed=wish.seed)
    return replace(record, drills=tuple(each for each in record.drills if each != mark))


def _check(desk: DrillContext, record: Record) -> tuple[InvariantResult, ...]:
    assert record.gang is not None, record.run.id
    secrets = [_checkpoint_key(desk, record)]
    credentials = site_paths.store_credentials(desk.site, desk.environ)
    secrets += [part.encode() for part in (credentials or "").split(":")[1:]]
    return invariants(
        record, home=GangFolder(launchers.gangs_root(desk.repo) / record.gang.name).inside, store=desk.store,
        model=str(record.inputs.values.get("publish.model") or record.run.project),
        keys=trusted_keys(desk.site, desk.environ), secrets=secrets, now=time.time(),
    )  # fmt: skip


def _report_loss(tell: Callable[[str], None], record: Record, after: Aftermath, interval: int) -> None:
    if after.lost_steps is None:
        return
    held = record.plan.world_size if record.plan else 1
    spent = f", {after.lost_seconds * held:.1f} rank-seconds" if after.lost_seconds is not None else ""
    since = f" since checkpoint step-{after.checkpoint_step:08d}" if after.checkpoint_step else ""
    saving = ", the next save was under way" if was_saving(after, interval) else ""
    tell(f"lost     {after.lost_steps} steps{since}{spent}{saving}    target <= 1 interval of {interval}")


def describe_samples(samples: SampleCounts) -> str:
    """What became of the samples: every one counts once, whatever was done again."""
    said = f"samples  {samples.lost} lost, {samples.twice} taken twice"
    said += f", {samples.again} done again" if samples.again else ""
    said += f", {samples.left_out} left out on purpose" if samples.left_out else ""
    said += f", {samples.unknown} unknown: the rank that took them died before it reported" if samples.unknown else ""
    return (
        said if samples.counted else f"{said}    (steps x train.global_batch: a program of its own reports no samples)"
    )
