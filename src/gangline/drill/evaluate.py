"""Result of a drill from what followed the fault: held, held late, broken with the promise, or not struck. Pure."""

from dataclasses import dataclass, replace

from gangline.drill.availability import Availability, describe_felt
from gangline.drill.catalogue import DrillKind
from gangline.drill.history import Aftermath, Injection
from gangline.drill.promises import PROMISES, nothing_more, store_promises
from gangline.drill.sample_counts import SampleCounts
from gangline.spec.measurements import Drill, Ledger
from gangline.spec.record import Record

_LOST_TO = ("restart", "redone", "stalled", "resume", "rendezvous", "build", "start")


@dataclass(frozen=True, kw_only=True, slots=True)
class InvariantResult:
    """One invariant: did it hold, as far as can be seen from here?"""

    name: str
    state: str
    """held, broken, pending, or `-` where nothing of its kind is here."""
    text: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class DrillObservations:
    """What was found beside the aftermath, once all was over."""

    invariants: tuple[InvariantResult, ...] = ()
    samples: SampleCounts = SampleCounts()
    felt: Availability | None = None
    """Of a store that was struck."""
    standing: tuple[str, ...] = ()
    """What stood in the store and should not have."""


def evaluate(
    kind: DrillKind, strike: Injection, after: Aftermath, seen: DrillObservations, *, interval: int, seed: int
) -> Drill:
    """The drill as it goes into the record.

    Args:
        kind: What was promised.
        strike: What was done.
        after: What followed.
        seen: What else was found, at the end.
        interval: Steps between checkpoints.
        seed: Of the drill.
    """
    broken = _broken(kind, strike, after, interval) + _broken_otherwise(kind, strike, after, seen)
    detect, recover = _times(kind, after, seen.felt)
    late = _late(kind, detect, recover)
    return Drill(
        name=kind.name,
        row=kind.row,
        result="broken" if broken else "held_late" if late else "held",
        reason="; ".join(broken) or late,
        seen=after.detected if seen.felt is None else describe_felt(seen.felt),
        detect_seconds=_rounded(detect),
        recover_seconds=_rounded(recover),
        lost_steps=after.lost_steps,
        lost_seconds=_rounded(after.lost_seconds) if kind.stalls else None,
        lost_samples=seen.samples.lost if seen.samples.counted else None,
        repeated_samples=seen.samples.twice if seen.samples.counted else None,
        arguments=arguments(strike, seed),
    )


def _times(kind: DrillKind, after: Aftermath, felt: Availability | None) -> tuple[float | None, float | None]:
    """Detection and recovery: of a store, until a save met it and until one was durable again."""
    if felt is not None:
        detect = felt.failed_seconds if kind.name == "fill-disk" else felt.met_seconds
        return detect, felt.durable_seconds
    goes_on = kind.stalls or after.answer in ("skip", "rollback")
    return after.detect_seconds, after.recover_seconds if goes_on else None


def _late(kind: DrillKind, detect: float | None, recover: float | None) -> str:
    """That it took longer than its target to recover; empty: it did not, or a pause ended before anybody noticed."""
    if kind.recover_seconds is None or recover is None or (kind.past_detection and detect is None):
        return ""
    took = recover - (detect or 0.0) if kind.past_detection else recover
    return f"recovered in {took:.1f} s, {kind.target}" if took > kind.recover_seconds else ""


def not_struck(kind: DrillKind, reason: str, *, seed: int) -> Drill:
    return Drill(name=kind.name, row=kind.row, result="not_struck", reason=reason, arguments={"seed": seed})


def arguments(strike: Injection, seed: int) -> dict[str, float]:
    found: dict[str, float] = {"rank": strike.rank, "step": strike.step, "seed": seed}
    return found | ({} if strike.seconds is None else {"seconds": strike.seconds})


def with_drill(record: Record, drill: Drill) -> Record:
    """The record with `drill`, once; the time it cost is charged to the drill instead of the gang's bad luck."""
    if drill in record.drills:
        return record
    same = [each for each in record.drills if (each.name, each.arguments) != (drill.name, drill.arguments)]
    ledger = record.ledger
    if ledger is not None and drill.lost_seconds and record.plan is not None:
        ledger = charge(ledger, drill.lost_seconds * record.plan.world_size)
    return replace(record, drills=(*same, drill), ledger=ledger)


def charge(ledger: Ledger, seconds: float) -> Ledger:
    """Move up to `seconds` from the causes that a fault runs up to `drill`; the sum stays."""
    left, rows = seconds, dict(ledger.seconds)
    for cause in _LOST_TO:
        taken = min(left, rows.get(cause, 0.0))
        if taken > 0:
            rows[cause] -= taken
            left -= taken
    rows["drill"] = rows.get("drill", 0.0) + seconds - left
    return replace(ledger, seconds=rows)


def _broken(kind: DrillKind, strike: Injection, after: Aftermath, interval: int) -> list[str]:
    found = list(after.breaks)
    if kind.name == "stop" and after.went_on_to is not None:
        found.append(
            f"the program ignores stop requests: rank {strike.rank} was asked to leave and trained on to step "
            f"{after.went_on_to}; one that sees stop_asked saves and leaves"
        )
    elif after.recover_seconds is None and kind.stalls:
        found.append("no new step came")
    if after.lost_steps is not None and after.lost_steps > interval and not was_saving(after, interval):
        why = "" if after.saves else "the program saves nothing, so it began again: "
        found.append(f"{why}lost {after.lost_steps} steps, promised at most {interval}")
    if kind.name in {"kill-rank", "kill-twice"} and after.detect_seconds is None:
        found.append("no keeper noticed")
    return found + list(PROMISES.get(kind.name, nothing_more)(strike, after))


def _broken_otherwise(kind: DrillKind, strike: Injection, after: Aftermath, seen: DrillObservations) -> list[str]:
    found = [f"{each.name}: {each.text}" for each in seen.invariants if each.state == "broken"]
    samples = seen.samples
    if samples.lost or samples.twice:
        what = "samples" if samples.counted else "samples (by the number of steps)"
        found.append(f"{samples.lost} {what} were left out, {samples.twice} count twice")
    if seen.felt is not None:
        found += store_promises(kind.name, strike, after, seen.felt)
    return found + list(seen.standing)


def was_saving(after: Aftermath, interval: int) -> bool:
    """Was a save under way at the strike? It is as good as durable only once it ends, so an interval more is lost."""
    due = after.reached // interval * interval
    return due > after.durable and after.saves and not after.saves_failed


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)
