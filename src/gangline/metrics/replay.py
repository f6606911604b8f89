"""Series of a rank at past times, recomputed from its events, to fill a gap in which nothing was scraped."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from gangline.metrics.from_events import RankSeries
from gangline.metrics.labels import MAX_RANKS
from gangline.metrics.series_store import SeriesStore


def replay(
    events: Iterable[Mapping[str, Any]], *, run: str, rank: int, every_seconds: float, world_size: int = 1
) -> Iterator[tuple[float, SeriesStore]]:
    """Time and values of the rank's series every `every_seconds` of its life, and at its last event.

    Args:
        events: Of `ranks/<rank>.jsonl`, in order; those without a time are ignored.
        run: Its id.
        rank: Whose events they are.
        every_seconds: Between two scrapes.
        world_size: Above 256 no rank has series of its own.
    """
    series = RankSeries(run, rank, SeriesStore(), by_rank=world_size <= MAX_RANKS)
    last: float | None = None
    due = 0.0
    for event in events:
        time = event.get("time")
        if not isinstance(time, int | float) or (last is not None and time < last):
            continue
        if last is None:
            due = time + every_seconds
        elif time > due:
            yield last, series.book
            due = max(due, time) + every_seconds
        last = time
        series.observe(event)
    if last is not None:
        yield last, series.book
