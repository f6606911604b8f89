"""Metrics of a program whose values differ between rank 0, whose values count, and other ranks."""

from collections.abc import Iterator, Mapping, Sequence
from math import isclose
from typing import Any

from gangline.line.results.rank_times import MANY_RANKS, read_tail
from gangline.metrics.step_table import finite
from gangline.sanitize import clean
from gangline.storage.objects.protocol import ObjectStore

_ROUNDING = 1e-6
"""Relative; sums of float32 in another order differ by less."""
_SHOWN_METRICS, _SHOWN_RANKS, _LONGEST_NAME = 3, 3, 60
Values = Mapping[str, float | None]
"""By metric, the last that a rank reported; None: no finite number."""


def differing_metrics_text(store: ObjectStore, prefix: str, *, world_size: int) -> str:
    """`ranks reported different values of accuracy: rank 0 0.91, rank 1 0.88; rank 0's counts`; empty: none is seen.

    At most 64 ranks that lie evenly are compared, each by its last report, where that is of the same step as rank 0's.
    """
    own = _last_report(store, prefix, 0)
    if own is None:
        return ""
    places = min(world_size, MANY_RANKS)
    ranks = sorted({world_size * place // places for place in range(1, places)})
    reports = ((rank, _last_report(store, prefix, rank)) for rank in ranks)
    others = {rank: _values(each) for rank, each in reports if each is not None and _same_time(own, each)}
    told = list(_told(_values(own), others))
    if not told:
        return ""
    more = f"; of {len(told) - _SHOWN_METRICS} more metrics, too" if len(told) > _SHOWN_METRICS else ""
    counts = "rank 0's counts" if len(told) == 1 else "those of rank 0 count"
    return f"ranks reported different values of {'; of '.join(told[:_SHOWN_METRICS])}{more}; {counts}"


def _told(own: Values, others: Mapping[int, Values]) -> Iterator[str]:
    """Of each metric that differs."""
    for name, value in own.items():
        found = [(rank, of[name]) for rank, of in others.items() if name in of and not _alike(value, of[name])]
        if found:
            shown = ", ".join(f"rank {rank} {_shown(each)}" for rank, each in [(0, value), *found[:_SHOWN_RANKS]])
            more = f" and {len(found) - _SHOWN_RANKS} more" if len(found) > _SHOWN_RANKS else ""
            yield f"{clean(name, limit=_LONGEST_NAME)}: {shown}{more}"


def _last_report(store: ObjectStore, prefix: str, rank: int) -> Mapping[str, Any] | None:
    events: Sequence[Mapping[str, Any]] = read_tail(store, prefix, rank)
    return next((each for each in reversed(events) if each.get("event") == "evaluated"), None)


def _same_time(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return all(one.get(each) == other.get(each) for each in ("generation", "step", "seed"))


def _values(report: Mapping[str, Any]) -> Values:
    metrics = report.get("metrics")
    return {str(name): finite(value) for name, value in metrics.items()} if isinstance(metrics, dict) else {}


def _alike(one: float | None, other: float | None) -> bool:
    if one is None or other is None:
        return one is other
    return isclose(one, other, rel_tol=_ROUNDING)


def _shown(value: float | None) -> str:
    return "no finite number" if value is None else f"{value:.7g}"
