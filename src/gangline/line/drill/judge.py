"""From what followed a strike to a result: held, broken with the promise that broke, or not struck. Pure."""

from dataclasses import dataclass, replace

from gangline.line.drill.catalogue import Kind
from gangline.line.drill.history import Aftermath, Strike
from gangline.spec.record import Drill, Ledger, Record
from gangline.units import format_seconds

SHORT_FREEZE_SECONDS = 10.0
"""A stop shorter than the watchdog's patience must pass without a restart."""
_LOST_TO = ("restart", "redone", "stalled", "resume", "rendezvous", "build", "start")


@dataclass(frozen=True, kw_only=True, slots=True)
class Held:
    """One invariant: did it hold, as far as can be seen from here?"""

    name: str
    state: str
    """held, broken, pending, or `-` where nothing of its kind is here."""
    text: str = ""


def judge(
    kind: Kind, strike: Strike, after: Aftermath, invariants: tuple[Held, ...], *, interval: int, seed: int
) -> Drill:
    """The drill as it goes into the record.

    Args:
        kind: What was promised.
        strike: What was done.
        after: What followed.
        invariants: As they were found at the end.
        interval: Steps between checkpoints.
        seed: Of the drill.
    """
    broken = _broken(kind, strike, after, interval) + [f"{h.name}: {h.text}" for h in invariants if h.state == "broken"]
    return Drill(
        name=kind.name,
        row=kind.row,
        result="broken" if broken else "held",
        reason="; ".join(broken),
        detect_seconds=_rounded(after.detect_seconds),
        recover_seconds=_rounded(after.recover_seconds),
        lost_steps=after.lost_steps,
        lost_seconds=_rounded(after.lost_seconds),
        arguments=arguments(strike, seed),
    )


def not_struck(kind: Kind, reason: str, *, seed: int) -> Drill:
    return Drill(name=kind.name, row=kind.row, result="not_struck", reason=reason, arguments={"seed": seed})


def arguments(strike: Strike, seed: int) -> dict[str, float]:
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


def _broken(kind: Kind, strike: Strike, after: Aftermath, interval: int) -> list[str]:
    found = list(after.breaks)
    if after.recover_seconds is None:
        found.append("no new step came")
    if after.lost_steps is not None and after.lost_steps > interval and not was_saving(after, interval):
        found.append(f"lost {after.lost_steps} steps, promised at most {interval}")
    if kind.name == "kill-rank" and after.detect_seconds is None:
        found.append("no keeper noticed")
    short = strike.seconds is not None and strike.seconds < SHORT_FREEZE_SECONDS
    if kind.name == "freeze-rank" and short and after.restarts:
        found.append(f"a stop of {format_seconds(strike.seconds or 0)} cost a restart")
    return found


def was_saving(after: Aftermath, interval: int) -> bool:
    """Was a save under way at the strike? It is as good as durable only once it ends, so an interval more is lost."""
    due = after.reached // interval * interval
    return due > after.durable and not after.saves_failed


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)
