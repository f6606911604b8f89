"""Metrics that each rank left in its stored events: series while it trained, and values that differ between ranks."""

from collections.abc import Iterator, Mapping, Sequence
from math import isclose
from typing import Any

from gangline.line.results.loss_curve import each_line
from gangline.line.results.rank_times import MANY_RANKS, read_tail
from gangline.metrics.from_events import replay
from gangline.metrics.series_store import SeriesStore
from gangline.metrics.step_table import finite
from gangline.sanitize import clean
from gangline.spec.output_limits import MOST_EVENT_BYTES
from gangline.spec.record import Record
from gangline.storage.objects.growing_file import find_growing_file
from gangline.storage.objects.protocol import ObjectStore

_ROUNDING = 1e-6
"""Relative; sums of float32 in another order differ by less."""
_SHOWN_METRICS, _SHOWN_RANKS, _LONGEST_NAME = 3, 3, 60
Values = Mapping[str, float | None]
"""Last value that a rank reported, by metric; None: not finite."""


def rank_metric_snapshots(
    store: ObjectStore, record: Record, *, every_seconds: float
) -> Iterator[tuple[float, SeriesStore]]:
    """Snapshots of the series of one rank after the other, each from its start to its end.

    A yielded series store is reused: read it before the next one is requested.

    Raises:
        StorageError: The store is away.
        IntegrityError: A rank wrote too many events.
    """
    world_size = record.plan.world_size if record.plan else 0
    for rank in range(world_size):
        file = find_growing_file(store, f"{record.gang_prefix}/ranks/{rank}.jsonl")
        if file is None:
            continue
        file.demand(MOST_EVENT_BYTES)
        events = each_line(file)
        yield from replay(events, run=record.run.id, rank=rank, every_seconds=every_seconds, world_size=world_size)


def differing_metrics_text(store: ObjectStore, prefix: str, *, world_size: int) -> str:
    """`ranks reported different values of accuracy: rank 0 0.91, rank 1 0.88; rank 0's counts`; empty if none differs.

    Compares at most 64 evenly spaced ranks, each by its last report if that is of the same step as rank 0's.
    """
    own = _last_report(store, prefix, 0)
    if own is None:
        return ""
    num_ranks = min(world_size, MANY_RANKS)
    ranks = sorted({world_size * index // num_ranks for index in range(1, num_ranks)})
    reports = ((rank, _last_report(store, prefix, rank)) for rank in ranks)
    others = {rank: _values(each) for rank, each in reports if each is not None and _is_same_step(own, each)}
    texts = list(_differences(_values(own), others))
    if not texts:
        return ""
    more = f"; of {len(texts) - _SHOWN_METRICS} more metrics, too" if len(texts) > _SHOWN_METRICS else ""
    counts = "rank 0's counts" if len(texts) == 1 else "those of rank 0 count"
    return f"ranks reported different values of {'; of '.join(texts[:_SHOWN_METRICS])}{more}; {counts}"


def reporting_processes_text(store: ObjectStore, prefix: str) -> str:
    """Sentence about several processes that reported as rank 0 in one generation; empty if it was one."""
    file = find_growing_file(store, f"{prefix}/ranks/0.jsonl")
    processes: dict[Any, set[Any]] = {}
    for event in each_line(file or ()):
        if event.get("event") == "started":
            processes.setdefault(str(event.get("generation")), set()).add(str(event.get("pid")))
    most = max(map(len, processes.values()), default=0)
    if most < 2:
        return ""
    return (
        f"{most} processes reported as rank 0, by Program or Session: of a step or metric that several have, the last"
        " report counts; let one of them report, or let gangline start the ranks"
    )


def _differences(own: Values, others: Mapping[int, Values]) -> Iterator[str]:
    """The values of each metric that differs."""
    for name, value in own.items():
        found = [(rank, of[name]) for rank, of in others.items() if name in of and not _is_close(value, of[name])]
        if found:
            shown = ", ".join(f"rank {rank} {_text(each)}" for rank, each in [(0, value), *found[:_SHOWN_RANKS]])
            more = f" and {len(found) - _SHOWN_RANKS} more" if len(found) > _SHOWN_RANKS else ""
            yield f"{clean(name, limit=_LONGEST_NAME)}: {shown}{more}"


def _last_report(store: ObjectStore, prefix: str, rank: int) -> Mapping[str, Any] | None:
    events: Sequence[Mapping[str, Any]] = read_tail(store, prefix, rank)
    return next((event for event in reversed(events) if event.get("event") == "evaluated"), None)


def _is_same_step(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return all(one.get(each) == other.get(each) for each in ("generation", "step", "seed"))


def _values(report: Mapping[str, Any]) -> Values:
    metrics = report.get("metrics")
    return {str(name): finite(value) for name, value in metrics.items()} if isinstance(metrics, dict) else {}


def _is_close(one: float | None, other: float | None) -> bool:
    if one is None or other is None:
        return one is other
    return isclose(one, other, rel_tol=_ROUNDING)


def _text(value: float | None) -> str:
    return "no finite number" if value is None else f"{value:.7g}"
