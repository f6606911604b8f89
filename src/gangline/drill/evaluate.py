"""Result of a drill from what followed the fault: held, held late, broken with the promise, or not injected. Pure.

Promises beyond recovery and one lost interval are those of each drill; broken ones become sentences.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from gangline.drill.catalogue import DrillKind
from gangline.drill.history import Aftermath, Availability, Injection, SampleCounts, describe_effect
from gangline.errors import NonFiniteError, OutOfMemoryError
from gangline.line.results.ledger import with_drill_loss
from gangline.spec.measurements import Drill
from gangline.spec.record import Record
from gangline.units import format_seconds


@dataclass(frozen=True, kw_only=True, slots=True)
class InvariantResult:
    """An invariant, and whether it holds as far as a drill can see."""

    name: str
    state: str
    """held, broken, pending, or `-` if it does not apply."""
    text: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class DrillObservations:
    """Findings after the end, in addition to the aftermath."""

    invariants: tuple[InvariantResult, ...] = ()
    samples: SampleCounts = SampleCounts()
    effect: Availability | None = None
    """Effect of an outage of the store; None for other drills."""
    bad_checkpoints: tuple[str, ...] = ()
    """Invalid checkpoints in the store, as sentences."""


def evaluate(
    kind: DrillKind, injection: Injection, after: Aftermath, seen: DrillObservations, *, interval: int, seed: int
) -> Drill:
    """Judge a drill; the result is for the record.

    Args:
        kind: The drill, with its target.
        injection: The fault.
        after: What followed it.
        seen: Findings after the end.
        interval: Steps between checkpoints.
        seed: Of the drill.
    """
    broken = _broken(kind, injection, after, interval) + _broken_otherwise(kind, injection, after, seen)
    detect, recover = _times(kind, after, seen.effect)
    late = _late(kind, detect, recover)
    return Drill(
        name=kind.name,
        row=kind.row,
        result="broken" if broken else "held_late" if late else "held",
        reason="; ".join(broken) or late,
        seen=after.detected if seen.effect is None else describe_effect(seen.effect),
        detect_seconds=_rounded(detect),
        recover_seconds=_rounded(recover),
        lost_steps=after.lost_steps,
        lost_seconds=_rounded(after.lost_seconds) if kind.stalls else None,
        lost_samples=seen.samples.lost if seen.samples.counted else None,
        repeated_samples=seen.samples.twice if seen.samples.counted else None,
        arguments=arguments(injection, seed),
    )


def _times(kind: DrillKind, after: Aftermath, effect: Availability | None) -> tuple[float | None, float | None]:
    """Seconds until detection and recovery; of a store, until a save met the fault and until one was durable."""
    if effect is not None:
        detect = effect.failed_seconds if kind.name == "fill-disk" else effect.met_seconds
        return detect, effect.durable_seconds
    goes_on = kind.stalls or after.answer in ("skip", "rollback")
    return after.detect_seconds, after.recover_seconds if goes_on else None


def _late(kind: DrillKind, detect: float | None, recover: float | None) -> str:
    """Sentence on a recovery slower than its target; empty if it was in time, or was not detected."""
    if kind.recover_seconds is None or recover is None or (kind.past_detection and detect is None):
        return ""
    took = recover - (detect or 0.0) if kind.past_detection else recover
    return f"recovered in {took:.1f} s, {kind.target}" if took > kind.recover_seconds else ""


def not_injected(kind: DrillKind, reason: str, *, seed: int) -> Drill:
    """Result of a drill whose fault was not injected."""
    return Drill(name=kind.name, row=kind.row, result="not_struck", reason=reason, arguments={"seed": seed})


def arguments(injection: Injection, seed: int) -> dict[str, float]:
    """Options of `gangline drill` that inject the same fault again."""
    found: dict[str, float] = {"rank": injection.rank, "step": injection.step, "seed": seed}
    return found | ({} if injection.seconds is None else {"seconds": injection.seconds})


def with_drill(record: Record, drill: Drill) -> Record:
    """The record with `drill`, once; in a ledger that is there already its lost time becomes the cause `drill`."""
    if drill in record.drills:
        return record
    same = [each for each in record.drills if (each.name, each.arguments) != (drill.name, drill.arguments)]
    ledger = record.ledger
    if ledger is not None and record.plan is not None:
        ledger = with_drill_loss(ledger, [drill], record.gang, ranks=record.plan.world_size)
    return replace(record, drills=(*same, drill), ledger=ledger)


def _broken(kind: DrillKind, injection: Injection, after: Aftermath, interval: int) -> list[str]:
    found = list(after.breaks)
    if kind.name == "stop" and after.went_on_to is not None:
        found.append(
            f"the program ignores stop requests: rank {injection.rank} got SIGTERM and trained on to step "
            f"{after.went_on_to}; a program that reads stop_asked saves and leaves"
        )
    elif after.recover_seconds is None and kind.stalls:
        found.append("no further step was finished")
    if after.lost_steps is not None and after.lost_steps > interval and not was_saving(after, interval):
        cause = "" if after.saves else "the program saves nothing, so it started from the beginning: "
        found.append(f"{cause}lost {after.lost_steps} steps, promised at most {interval}")
    if kind.name in {"kill-rank", "kill-twice"} and after.detect_seconds is None:
        found.append("no keeper noticed")
    promises = PROMISES.get(kind.name)
    return found + (list(promises(injection, after)) if promises else [])


def _broken_otherwise(kind: DrillKind, injection: Injection, after: Aftermath, seen: DrillObservations) -> list[str]:
    found = [f"{invariant.name}: {invariant.text}" for invariant in seen.invariants if invariant.state == "broken"]
    samples = seen.samples
    if samples.lost or samples.twice:
        what = "samples" if samples.counted else "samples (by the number of steps)"
        found.append(f"{samples.lost} {what} were left out, {samples.twice} count twice")
    if seen.effect is not None:
        found += store_promises(kind.name, injection, after, seen.effect)
    return found + list(seen.bad_checkpoints)


def was_saving(after: Aftermath, interval: int) -> bool:
    """Whether a save was running at the injection, which was not durable yet: one more interval may be lost."""
    due = after.reached // interval * interval
    return due > after.durable and after.saves and not after.saves_failed


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)


SHORT_FREEZE_SECONDS = 10.0
"""A freeze shorter than the watchdog's limit must pass without a restart."""
WATCHDOG_SECONDS = 14.0
"""10 s beyond two steps, two polls, the collection of stacks, and 2 s for a busy machine."""
NAMED_SECONDS = 60.0
MOST_CHARGES = 2
"""Charged restarts for two kills; one if the second comes within a second."""
SLOWER, SLACK_SECONDS = 1.5, 0.1
"""Limit of a step during an outage: a multiple of the usual time, and seconds for a busy machine."""


def _freeze(injection: Injection, after: Aftermath) -> Iterator[str]:
    short = injection.seconds is not None and injection.seconds < SHORT_FREEZE_SECONDS
    if short and after.restarts:
        yield f"a stop of {format_seconds(injection.seconds or 0)} cost a restart"


def _hang(injection: Injection, after: Aftermath) -> Iterator[str]:
    if after.detect_seconds is None:
        yield "no watchdog noticed"
        return
    most = 2 * (after.usual_step or 0.0) + WATCHDOG_SECONDS
    if after.detect_seconds > most:
        yield f"found after {after.detect_seconds:.1f} s, promised within {most:.1f} s"
    if f"rank {injection.rank} " not in after.detected:
        yield f"rank {injection.rank} hung, detected was: {after.detected}"


def _twice(injection: Injection, after: Aftermath) -> Iterator[str]:
    del injection
    if after.charged > MOST_CHARGES:
        yield f"two kills cost {after.charged} restarts of the budget"


def _uncharged(injection: Injection, after: Aftermath) -> Iterator[str]:
    """Leaving together costs no step and no restart."""
    if after.charged:
        yield f"{after.charged} restarts were charged, promised none"
    if after.lost_steps:
        yield f"lost {after.lost_steps} steps, promised none: all ranks save before they leave"
    if injection.ranks and after.world_size not in (None, injection.ranks):
        yield f"continued with {after.world_size} ranks, {injection.ranks} were requested"


def _slow(injection: Injection, after: Aftermath) -> Iterator[str]:
    if after.detect_seconds is None:
        yield f"rank {injection.rank} was not reported as slow"
    elif after.detect_seconds > NAMED_SECONDS:
        yield f"reported after {after.detect_seconds:.1f} s, promised within {NAMED_SECONDS:g} s"
    if after.restarts:
        yield "a slow rank cost a restart"


def _poison(injection: Injection, after: Aftermath) -> Iterator[str]:
    """The step is detected at once, and nothing of it is saved."""
    if not after.answer:
        yield "no step was reported as not finite"
    elif f"step {injection.step + 1} " not in after.detected:
        yield f"step {injection.step + 1} was poisoned, detected was: {after.detected}"
    yield from _ends(injection, after)
    if after.charged:
        yield f"a bad batch cost {after.charged} restarts of the budget"


def _oom(injection: Injection, after: Aftermath) -> Iterator[str]:
    yield from _ends(injection, after)
    if after.restarts:
        yield f"{after.restarts} generations tried again with as much memory"


def _ends(injection: Injection, after: Aftermath) -> Iterator[str]:
    """The gang ends with the exit code of the fault, if it is expected to end."""
    names = {NonFiniteError.exit_code: "not finite", OutOfMemoryError.exit_code: "out of memory"}
    if injection.ends is not None and after.exit_code != injection.ends:
        found = "it continued" if after.exit_code is None else f"it ended with {after.exit_code}"
        yield f"promised exit {injection.ends}, {names.get(injection.ends, '')}; {found}"
    if after.bad_saves:
        yield f"step {after.bad_saves[0]} was saved after the fault"


def _lost_node(injection: Injection, after: Aftermath) -> Iterator[str]:
    del injection
    if after.detect_seconds is None:
        yield "no keeper noticed"
    if after.charged > 1:
        yield f"one lost node cost {after.charged} restarts of the budget"
    if not after.source:
        yield "nothing was opened again: neither a copy in memory nor the store had a checkpoint"


PROMISES: dict[str, Callable[[Injection, Aftermath], Iterator[str]]] = {
    "freeze-rank": _freeze,
    "hang-rank": _hang,
    "kill-twice": _twice,
    "slow-rank": _slow,
    "stop": _uncharged,
    "resize": _uncharged,
    "poison": _poison,
    "oom": _oom,
    "lose-node": _lost_node,
}


def store_promises(name: str, injection: Injection, after: Aftermath, effect: Availability) -> Iterator[str]:
    """Promises of an outage of the store, which must not cost the gang a step."""
    gives_up = name == "fill-disk" and (injection.seconds or 0.0) > injection.patience
    if after.restarts and not gives_up:
        yield f"an outage of the store cost {after.restarts} restarts"
    if not effect.steps and not effect.ended:
        yield "no step was finished during the outage"
    if effect.usual_step and effect.step_during and effect.step_during > SLOWER * effect.usual_step + SLACK_SECONDS:
        yield f"steps took {effect.step_during:.2f} s during the outage, before {effect.usual_step:.2f} s"
    if effect.durable_step is None:
        yield "nothing was saved after the outage"
    if name == "fill-disk":
        yield from _full(effect, gives_up=gives_up)


def _full(effect: Availability, *, gives_up: bool) -> Iterator[str]:
    if not effect.failed:
        yield "no save was reported as failed"
    elif "full" not in effect.said and "space" not in effect.said:
        yield f"the reason of the failure is not a full disk: {effect.said}"
    if effect.gave_up and not gives_up:
        yield "the ranks exited before train.checkpoint.max_unsaved_seconds"
    if gives_up and not effect.gave_up:
        yield "the ranks continued beyond train.checkpoint.max_unsaved_seconds without exit 40"
