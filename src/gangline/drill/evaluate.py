"""Result of a drill from what followed the fault: held, held late, broken with the promise, or not injected. Pure."""

from dataclasses import dataclass, replace

from gangline.drill.availability import Availability, describe_effect
from gangline.drill.catalogue import DrillKind
from gangline.drill.history import Aftermath, Injection
from gangline.drill.promises import PROMISES, no_promises, store_promises
from gangline.drill.sample_counts import SampleCounts
from gangline.line.results.ledger import with_drill_loss
from gangline.spec.measurements import Drill
from gangline.spec.record import Record


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
    return found + list(PROMISES.get(kind.name, no_promises)(injection, after))


def _broken_otherwise(kind: DrillKind, injection: Injection, after: Aftermath, seen: DrillObservations) -> list[str]:
    found = [f"{each.name}: {each.text}" for each in seen.invariants if each.state == "broken"]
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
