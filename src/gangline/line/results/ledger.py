"""Ledger of a run: allocated seconds by cause, merged over its gangs; the rows sum to the allocation exactly."""

import math
from collections.abc import Iterable
from dataclasses import replace

from gangline.line.gangs.attempts import FinishedGang, GangShare
from gangline.line.record.context import StageResult
from gangline.spec.measurements import LEDGER_CAUSES, Drill, Ledger
from gangline.spec.plan import Device
from gangline.spec.record import GangInfo, Record


def merge_ledgers(device: Device, shares: Iterable[GangShare]) -> Ledger:
    """Sum over all gangs; time without a cause is `other`, time with two causes is scaled down."""
    rows: dict[str, list[float]] = {}
    allocated = []
    for share in shares:
        allocated.append(share.allocated)
        for cause, seconds in exact(share).items():
            rows.setdefault(cause, []).append(seconds)
    sums = {cause: math.fsum(values) for cause, values in rows.items()}
    return Ledger(
        resource="gpu" if device == "cuda" else "cpu",
        allocated_seconds=math.fsum(allocated),
        seconds=dict(sorted(sums.items())),
    )


def exact(share: GangShare) -> dict[str, float]:
    """Rows that sum to the allocation; unknown causes are `other`, zeros are left out."""
    rows: dict[str, float] = {}
    for cause, seconds in share.seconds.items():
        known = cause if cause in LEDGER_CAUSES else "other"
        if math.isfinite(seconds) and seconds > 0:
            rows[known] = rows.get(known, 0.0) + seconds
    total = math.fsum(rows.values())
    if total > share.allocated:
        rows = {cause: seconds * (share.allocated / total) for cause, seconds in rows.items()}
    rest = share.allocated - math.fsum(rows.values())
    if rest > 0:
        rows["other"] = rows.get("other", 0.0) + rest
    return {cause: seconds for cause, seconds in rows.items() if seconds > 0}


def with_drill_loss(ledger: Ledger, drills: Iterable[Drill], gang: GangInfo | None, *, ranks: int) -> Ledger:
    """The ledger with the time that drills cost all `ranks` as a cause of its own; the rows keep their sum.

    It is taken from what failures cause, then from what each generation does at its start, as far as later ones did
    it, and the rest from the steps, or from `other` where ranks account for no steps. The first start stays as it was.
    """
    lost = math.fsum(drill.lost_seconds * ranks for drill in drills if drill.lost_seconds)
    later = 1 - 1 / gang.generations if gang is not None else 0.0
    steps = ("compute", "data", "wait", "bubble", "checkpoint") if ledger.seconds.get("compute") else ()
    causes = [("restart", 1.0), ("redone", 1.0), ("stalled", 1.0), ("resume", 1.0), ("rendezvous", later)]
    causes += [("build", later), *((cause, 1.0) for cause in (*steps, "other", "idle"))]
    left, rows = lost, dict(ledger.seconds)
    for cause, share in causes:
        taken = min(left, rows.get(cause, 0.0) * share)
        if taken > 0:
            rows[cause] -= taken
            left -= taken
    charged = {"drill": rows.get("drill", 0.0) + lost - left} if lost > left else {}
    return replace(ledger, seconds=rows | charged)


def with_shares(record: Record, *finished: FinishedGang) -> Ledger | None:
    """The run's ledger with the gangs of another stage added."""
    if not finished:
        return record.ledger
    recorded = [GangShare(record.ledger.allocated_seconds, record.ledger.seconds)] if record.ledger else []
    shares = [share for gang in finished for share in gang.shares]
    return merge_ledgers(finished[0].plan.device, [*recorded, *shares])


def failed_result(key: str, *finished: FinishedGang, what: str = "") -> StageResult:
    """Result of a stage whose last gang failed: its error, and the time of all gangs; `what` names what failed."""
    last = finished[-1]
    prefix = f"{what}: " if what else ""
    error = type(last.error)(f"{prefix}{last.error}") if last.error and prefix else last.error
    return StageResult(
        state="failed",
        message=f"{prefix}{last.end.reason}",
        key=key,
        change=lambda record: replace(record, ledger=with_shares(record, *finished)),
        error=error,
    )
