"""Where held seconds went: the ledgers of a run's gangs as one, whose rows sum to the allocation exactly. Pure."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from gangline.spec.measured import LEDGER_CAUSES, Ledger
from gangline.spec.plan import Device


@dataclass(frozen=True, slots=True)
class Share:
    """Of one gang: seconds of all its ranks by cause, out of `allocated`."""

    allocated: float
    seconds: Mapping[str, float]


def merge(device: Device, shares: Iterable[Share]) -> Ledger:
    """Sum of all gangs; what no cause explains is `other`, what is explained twice is scaled back."""
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


def exact(share: Share) -> dict[str, float]:
    """Rows that sum to the allocation; causes that nobody knows are `other`, zeros are left out."""
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
