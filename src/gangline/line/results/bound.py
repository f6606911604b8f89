"""What bounds the speed of a training: samples, the network, uneven ranks, the schedule or computation. Pure.

Ranks step together, so the one that waits least decides: its share of `data` is what all of them lose to reading. What
even that rank waits is the exchange itself; what the others wait more is imbalance.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Literal

from gangline.metrics.step_table import finite
from gangline.spec.data_source import DataSource
from gangline.spec.measurements import Diagnosis, Remedy
from gangline.units import format_bytes

Bound = Literal["data", "network", "imbalance", "bubble", "compute"]
LEAST = 0.05
"""Share of a step from which a loss is what bounds it."""
CACHED = 0.95
"""Share of reads from which a cache holds what is read."""
_WAITS = {
    "data": "a step waits {} for samples",
    "network": "every rank waits {} of a step for the others' messages",
    "imbalance": "ranks wait {} of a step for the slowest one",
    "bubble": "stages have nothing to do for {} of a step, by their schedule",
    "compute": "ranks compute in {} of a step",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class ShardReads:
    """What rank 0 read of data sets, summed over its events `shards`."""

    bytes: float = 0.0
    """Fetched from store or source."""
    seconds: float = 0.0
    fetched: float = 0.0
    cached: float = 0.0

    @staticmethod
    def of(events: Iterable[Mapping[str, Any]]) -> "ShardReads":
        """Events of rank 0; others than `shards` are ignored."""
        reads = [event for event in events if event.get("event") == "shards"]
        names = ShardReads.__dataclass_fields__
        return ShardReads(**{name: sum(max(finite(read.get(name)) or 0.0, 0.0) for read in reads) for name in names})


def find_bound(shares: Sequence[Mapping[str, float]]) -> tuple[Bound, float] | None:
    """What bounds a gang whose ranks spend these shares of a step by phase, and how much of it; None: not known."""
    if not shares or not any(share.get("forward", 0.0) + share.get("backward", 0.0) > 0 for share in shares):
        return None
    waits = [share.get("wait", 0.0) for share in shares]
    slowest = min(shares, key=lambda share: share.get("wait", 0.0))
    losses: dict[Bound, float] = {
        "data": slowest.get("data", 0.0),
        "network": min(waits),
        "imbalance": fmean(waits) - min(waits),
        "bubble": fmean(share.get("bubble", 0.0) for share in shares),
    }
    largest = max(losses, key=lambda loss: losses[loss])
    if losses[largest] >= LEAST:
        return largest, losses[largest]
    return "compute", 1 - sum(losses.values())


def bound_text(bound: Bound, share: float) -> str:
    """`a step waits 31 % for samples; 1.4 times as fast without`."""
    said = _WAITS[bound].format(f"{100 * share:.0f} %")
    return said if bound == "compute" or share > 0.99 else f"{said}; {1 / (1 - share):.1f} times as fast without"


def diagnose_bound(
    shares: Sequence[Mapping[str, float]], *, source: DataSource, reads: ShardReads, measures_waits: bool
) -> tuple[Diagnosis, ...]:
    """The one diagnosis of kind `bound`; none where that is not known.

    Args:
        shares: Of a step by phase, for each rank.
        source: Data of the plan.
        reads: What rank 0 read of data sets.
        measures_waits: Waits inside passes are among the shares; else computation is no finding.
    """
    found = find_bound(shares)
    if found is None or (found[0] == "compute" and not measures_waits):
        return ()
    bound, share = found
    told = [bound_text(bound, share)]
    if reads.fetched:
        told.append(f"store {format_bytes(reads.bytes / reads.seconds if reads.seconds else 0)}/s")
    if opened := reads.fetched + reads.cached:
        told.append(f"{100 * reads.cached / opened:.0f} % of reads cached")
    cost = None if bound == "compute" else 100 * share
    return (
        Diagnosis(
            kind="bound", names=(bound,), evidence=" · ".join(told), cost_percent=cost,
            action=_remedy(bound, source, reads),
        ),
    )  # fmt: skip


def _remedy(bound: Bound, source: DataSource, reads: ShardReads) -> Remedy:
    if bound != "data":
        return Remedy(kind=bound)
    if reads.fetched and reads.cached < CACHED * (reads.fetched + reads.cached):
        return Remedy(
            kind="warm", names=tuple(f"{dataset_use.name}@{dataset_use.version}" for dataset_use in source.sets)
        )
    return Remedy(kind="read_ahead", names=(str(max(2 * source.workers, 2)),))
