"""Execution of one drill in a run that trains: mark, inject, watch, check, evaluate, record.

A fault waits for its step, is injected, and is watched until the training is past that step. The store is checked last:
listed checkpoints are complete and signed, and their numbers finite.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from gangline.checkpoint.format.folder import CheckpointFolder
from gangline.checkpoint.format.manifest import ListedCheckpoint, RefusedCheckpoint, list_checkpoints
from gangline.checkpoint.format.stored_tensors import stream_tensor
from gangline.drill.catalogue import DrillRequest, DrillTarget, require_local_target
from gangline.drill.evaluate import DrillObservations, InvariantResult, evaluate, not_injected, was_saving, with_drill
from gangline.drill.history import (
    Aftermath,
    Availability,
    DrillHistory,
    Injection,
    SampleCounts,
    aftermath,
    availability,
    count_samples,
    with_redone_steps,
)
from gangline.drill.invariants import invariants
from gangline.drill.setup import DrillSetup
from gangline.errors import ConfigError, GanglineError, NonFiniteError, OutOfMemoryError, UsageError
from gangline.faults.process_faults import last_step
from gangline.launch.local.folder import GangFolder
from gangline.line.gangs import launchers
from gangline.line.record import runs
from gangline.line.record.store import RecordStore
from gangline.line.request.trust import checkpoint_owner
from gangline.line.stages.report import redraw
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

CHECK_SECONDS = 1.0

POLL_SECONDS = 0.1
_SOURCES = {"copy": "the memory of a node", "store": "the store"}
RECOVERY_SECONDS = 180.0
"""Time limit from the end of the fault to the step after the one that was reached."""


@dataclass(frozen=True, kw_only=True)
class DrillContext:
    """What a drill works with: repository, site, store, and `tell`, which gets each line."""

    repo: Path
    site: Site
    environ: Mapping[str, str]
    store: ObjectStore
    tell: Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class DrillOutcome:
    """An injection and what followed, or the reason why there was none."""

    home: Path = Path()
    """Folder of the gang."""
    target: DrillTarget | None = None
    injection: Injection | None = None
    reason: str = ""
    interval: int = 0
    batch: int = 0
    """Samples per step."""
    bad_checkpoints: tuple[str, ...] = ()
    """Checkpoints that were listed during the fault although incomplete, as sentences."""


def execute_drill(context: DrillContext, request: DrillRequest, record: Record, setup: DrillSetup) -> DrillOutcome:
    """Mark the run as drilled, inject the fault, watch the recovery."""
    record = runs.find_run(context.store, record.run.id)
    if record.plan is None or record.gang is None:
        raise ConfigError(f"run {record.run.id} has no gang yet; try again once it trains")
    require_local_target(request.kind.name, record.run.target)
    plan = Plan.from_json(get_blob(context.store, record.plan.key))
    target = request.choose_target(plan)
    home = launchers.gangs_root(context.repo) / record.gang.name
    mark = not_injected(request.kind, UNDER_WAY, seed=request.seed)
    RecordStore.of(context.store, record, Sealer.of(context.site, context.environ)).change(
        lambda each: with_drill(each, mark)
    )
    try:
        injection = inject_fault(home, target, setup=setup, plan=plan)
    except NotInjectedError as error:
        return DrillOutcome(reason=str(error))
    context.tell(f"{describe_injection(target, injection):<56} row {request.kind.row}")
    watch = _CheckpointWatch(context, record) if request.kind.setup == "store" else None
    watch_recovery(home, target, injection, context.tell, look=watch)
    return DrillOutcome(
        home=home, target=target, injection=injection, interval=plan.checkpoint.every,
        batch=plan.global_batch,
        bad_checkpoints=watch.found if watch else (),
    )  # fmt: skip


class _CheckpointWatch:
    """Checks the listed checkpoints once a second during an outage of the store."""

    def __init__(self, context: DrillContext, record: Record) -> None:
        self._store, self._prefix = context.store, f"{record.gang_prefix}/checkpoints"
        self._key = _checkpoint_key(context, record)
        self._next = 0.0
        self.found: tuple[str, ...] = ()

    def __call__(self) -> None:
        if time.monotonic() >= self._next:
            self.found = tuple(
                dict.fromkeys((*self.found, *incomplete_checkpoints(self._store, self._prefix, self._key)))
            )
            self._next = time.monotonic() + CHECK_SECONDS


def record_result(
    context: DrillContext, request: DrillRequest, record: Record, outcome: DrillOutcome
) -> tuple[Record, Drill]:
    """Check invariants and store, judge, replace the mark in the record by the result, and draw its pages again."""
    if outcome.injection is None:
        drill = not_injected(request.kind, outcome.reason, seed=request.seed)
    else:
        drill = _evaluate(context, request, record, outcome)
    sealer = Sealer.of(context.site, context.environ)
    record = RecordStore.of(context.store, record, sealer).change(
        lambda each: with_drill(_without_mark(each, request), drill)
    )
    try:
        return redraw(context.store, record, sealer), drill
    except GanglineError as error:
        context.tell(f"report   not drawn again, gangline report {record.run.id} does it: {error}")
        return record, drill


def _evaluate(context: DrillContext, request: DrillRequest, record: Record, outcome: DrillOutcome) -> Drill:
    """Judge by the gang's files as they are now; a dedicated run has ended, so they are complete."""
    assert outcome.target is not None, "an injection has a target"
    assert outcome.injection is not None, "there was an injection"
    history, injection = DrillHistory.read(GangFolder(outcome.home).inside), outcome.injection
    after = aftermath(history, injection)
    effect = availability_of(outcome.target, history, injection)
    if effect is not None and effect.met_step is None:
        seconds = f"{outcome.target.seconds:g} s"
        reason = f"no save was due in the {seconds} of the fault; use a longer --seconds, or another --step"
        return not_injected(request.kind, reason, seed=request.seed)
    samples = with_redone_steps(
        count_samples(history, batch=outcome.batch), steps=after.lost_steps or 0, batch=outcome.batch
    )
    held = _check(context, record)
    if request.kind.stalls or injection.ends is not None:
        _report_loss(context.tell, record, after, outcome.interval)
    context.tell(describe_samples(samples))
    context.tell("check    " + "  ".join(f"{result.name} {result.state}" for result in held))
    bad_checkpoints = (
        *outcome.bad_checkpoints,
        *invalid_checkpoints(context.store, f"{record.gang_prefix}/checkpoints", _checkpoint_key(context, record)),
    )
    seen = DrillObservations(
        invariants=held, samples=samples, effect=effect, bad_checkpoints=tuple(dict.fromkeys(bad_checkpoints))
    )
    return evaluate(request.kind, injection, after, seen, interval=outcome.interval, seed=request.seed)


def _checkpoint_key(context: DrillContext, record: Record) -> bytes:
    return signing_key(context.site, context.environ).checkpoint_key(checkpoint_owner(record))


def _without_mark(record: Record, request: DrillRequest) -> Record:
    """The record without the mark of a running drill."""
    mark = not_injected(request.kind, UNDER_WAY, seed=request.seed)
    return replace(record, drills=tuple(drill for drill in record.drills if drill != mark))


def _check(context: DrillContext, record: Record) -> tuple[InvariantResult, ...]:
    assert record.gang is not None, record.run.id
    secrets = [_checkpoint_key(context, record)]
    credentials = site_paths.store_credential_text(context.site, context.environ)
    secrets += [part.encode() for part in (credentials or "").split(":")[1:]]
    return invariants(
        record, home=GangFolder(launchers.gangs_root(context.repo) / record.gang.name).inside, store=context.store,
        model=str(record.inputs.values.get("publish.model") or record.run.project),
        keys=trusted_keys(context.site, context.environ), secrets=secrets, now=time.time(),
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
    """Sentence on the samples; each counts once, however often its step was repeated."""
    text = f"samples  {samples.lost} lost, {samples.twice} taken twice"
    text += f", {samples.again} done again" if samples.again else ""
    text += f", {samples.left_out} skipped on purpose" if samples.left_out else ""
    text += f", {samples.unknown} unknown: their rank died before it reported them" if samples.unknown else ""
    return text if samples.counted else f"{text}    (steps x train.global_batch: a program reports no samples)"


_EXPONENTS: dict[str, tuple[Literal["Q", "I", "H"], int]] = {
    "F64": ("Q", 0x7FF << 52),
    "F32": ("I", 0xFF << 23),
    "BF16": ("H", 0xFF << 7),
    "F16": ("H", 0x1F << 10),
}
"""dtype -> code of a word in this machine's byte order, and the bits that are all set if a number is not finite."""


def incomplete_checkpoints(store: ObjectStore, prefix: str, key: bytes) -> list[str]:
    """Checkpoints below `prefix` that are listed, but not complete and signed; as sentences."""
    return [
        problem
        for checkpoint in list_checkpoints(store, prefix)
        if (problem := _opening_problem(store, checkpoint, key))
    ]


def invalid_checkpoints(store: ObjectStore, prefix: str, key: bytes) -> list[str]:
    """Problems of checkpoints below `prefix`; reads every byte: digests must match and all numbers be finite."""
    broken = incomplete_checkpoints(store, prefix, key)
    if broken:
        return broken
    return [
        problem
        for checkpoint in list_checkpoints(store, prefix)
        if (problem := _reading_problem(store, checkpoint, key))
    ]


class NotInjectedError(GanglineError):
    """The fault could not be injected."""

    exit_code = 10


def inject_fault(home: Path, target: DrillTarget, *, setup: DrillSetup, plan: Plan) -> Injection:
    """Inject the fault once the rank has finished the step.

    Raises:
        NotInjectedError: The gang ended before, or the rank died by itself.
    """
    folder = GangFolder(home)
    while (reached := last_step(home, target.rank)) is None or reached < target.step:
        if folder.end(0) is not None:
            reported = "; its program reported no step, which a drill needs" if reached is None else ""
            raise NotInjectedError(f"the gang ended before rank {target.rank} reached step {target.step}{reported}")
        time.sleep(POLL_SECONDS / 5)
    status = folder.keeper(0)
    generation = status.generation if status else 0
    try:
        mono = setup.inject(home, target)
    except UsageError as error:
        raise NotInjectedError(f"rank {target.rank} could not be reached: {error}") from error
    within = target.kind.setup == "task"
    return Injection(
        rank=target.rank, step=target.step if within else reached, generation=generation, mono=mono,
        seconds=target.seconds,
        ranks=target.ranks, stays=within or target.kind.setup == "store", ends=_end_wanted(target, plan),
        every=plan.checkpoint.every, steps=plan.steps, patience=plan.checkpoint.max_unsaved_seconds,
    )  # fmt: skip


def watch_recovery(
    home: Path,
    target: DrillTarget,
    injection: Injection,
    tell: Callable[[str], None],
    *,
    look: Callable[[], None] | None = None,
) -> None:
    """Watch until the training is past the step it had reached, has ended, or the time limit is over.

    `look` is called repeatedly during the fault.
    """
    folder = GangFolder(home)
    deadline = injection.mono + (injection.seconds or 0.0) + RECOVERY_SECONDS
    reported: set[str] = set()
    while True:
        ended = folder.end(0) is not None
        history = DrillHistory.read(folder.inside)
        after = aftermath(history, injection)
        effect = availability_of(target, history, injection)
        if effect is None:
            _report_recovery(after, tell, reported, target.kind.target)
            if injection.ends is not None and after.exit_code is not None and "end" not in reported:
                reported.add("end")
                tell(f"end      exit {after.exit_code}    {target.kind.target}")
        else:
            _report_effect(effect, tell, reported, target)
        is_over = ended if injection.ends is not None else _is_past(after, effect)
        if (is_over and _is_over(injection)) or ended or time.monotonic() > deadline:
            return
        if look is not None and not _is_over(injection):
            look()
        time.sleep(POLL_SECONDS)


def availability_of(target: DrillTarget, history: DrillHistory, injection: Injection) -> Availability | None:
    """Effect on the gang of an outage of the store; None for other drills."""
    if target.kind.setup != "store":
        return None
    return availability(history, injection, slow=target.kind.name == "slow-store")


def describe_injection(target: DrillTarget, injection: Injection) -> str:
    """The line of the report on the injection."""
    return f"inject   +0.0 s   {target.fault} at step {injection.step}"


def _opening_problem(store: ObjectStore, found: ListedCheckpoint, key: bytes) -> str:
    try:
        CheckpointFolder.open(store, found.prefix, key)
    except RefusedCheckpoint as refused:
        return _unless_deleted(store, found, f"the checkpoint of step {found.step} is listed, but {refused}")
    return ""


def _reading_problem(store: ObjectStore, found: ListedCheckpoint, key: bytes) -> str:
    try:
        bad = next(_not_finite(CheckpointFolder.open(store, found.prefix, key)), "")
    except RefusedCheckpoint as refused:
        return _unless_deleted(store, found, f"the checkpoint of step {found.step} is listed, but {refused}")
    return f"the checkpoint of step {found.step} holds {bad}, which is not finite" if bad else ""


def _unless_deleted(store: ObjectStore, found: ListedCheckpoint, problem: str) -> str:
    """`problem`, unless retention has deleted the checkpoint meanwhile, which it starts with the manifest."""
    return problem if store.head(found.manifest_key) is not None else ""


def _not_finite(folder: CheckpointFolder) -> Iterator[str]:
    for name, tensor in sorted(folder.index().tensors.items()):
        data = b"".join(map(bytes, stream_tensor(folder, name, tensor)))
        if tensor.dtype not in _EXPONENTS:
            continue
        code, exponent = _EXPONENTS[tensor.dtype]
        if any(word & exponent == exponent for word in memoryview(data).cast(code)):
            yield name


def _end_wanted(target: DrillTarget, plan: Plan) -> int | None:
    if target.kind.name == "oom":
        return OutOfMemoryError.exit_code
    if target.kind.name == "poison" and plan.recovery.non_finite == "stop":
        return NonFiniteError.exit_code
    return None


def _is_past(after: Aftermath, effect: Availability | None) -> bool:
    return after.lost_seconds is not None if effect is None else effect.durable_seconds is not None


def _is_over(injection: Injection) -> bool:
    return injection.seconds is None or time.monotonic() > injection.mono + injection.seconds


def _report_recovery(after: Aftermath, tell: Callable[[str], None], reported: set[str], target: str) -> None:
    """Report each line once, when all of it is known."""
    answered = after.restarts or after.recover_seconds is not None or after.exit_code is not None or after.answer
    if after.detect_seconds is not None and answered and "detect" not in reported:
        reported.add("detect")
        tell(f"detect   +{after.detect_seconds:.1f} s   {after.detected}")
    if after.recover_seconds is not None and "recover" not in reported:
        reported.add("recover")
        ranks = f", world size {after.world_size}" if after.world_size else ""
        opened = f", opened from {_SOURCES[after.source]}" if after.source else ""
        tell(f"recover  +{after.recover_seconds:.1f} s   first new step {after.new_step}{ranks}{opened}    {target}")


def _report_effect(effect: Availability, tell: Callable[[str], None], reported: set[str], target: DrillTarget) -> None:
    """Report each line about an outage of the store once, when all of it is known."""
    if effect.met_seconds is not None and "met" not in reported:
        reported.add("met")
        tell(f"meet     +{effect.met_seconds:.1f} s   the save of step {effect.met_step}")
    if effect.failed_seconds is not None and "failed" not in reported:
        reported.add("failed")
        tell(f"detect   +{effect.failed_seconds:.1f} s   save failed: {effect.said}")
    if effect.durable_seconds is not None and "durable" not in reported:
        reported.add("durable")
        since = "after the injection" if target.kind.name == "slow-store" else "after it was over"
        tell(
            f"recover  +{effect.durable_seconds:.1f} s   {since}: step {effect.durable_step} is durable, "
            f"{effect.steps} steps meanwhile    {target.kind.target}"
        )
