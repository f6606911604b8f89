"""What a scraper would have read of a rank, from the events that the rank wrote: to close a gap in which none came."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from gangline.metrics.book import Book
from gangline.metrics.labels import MAX_RANKS
from gangline.metrics.told import RankTold


def replay(
    events: Iterable[Mapping[str, Any]], *, run: str, rank: int, every_seconds: float, world_size: int = 1
) -> Iterator[tuple[float, Book]]:
    """The rank's book as it stood every so many seconds of its life, and at its last event; read it at once.

    Args:
        events: As they stand in `ranks/<rank>.jsonl`, in order; those without a time are passed over.
        run: Its id.
        rank: Whose events they are.
        every_seconds: Between two scrapes.
        world_size: Above 256 no rank has series of its own.
    """
    told = RankTold(run, rank, Book(), by_rank=world_size <= MAX_RANKS)
    last: float | None = None
    due = 0.0
    for event in events:
        time = event.get("time")
        if not isinstance(time, int | float) or (last is not None and time < last):
            continue
        if last is None:
            due = time + every_seconds
        elif time > due:
            yield last, told.book
            due = max(due, time) + every_seconds
        last = time
        told.observe(event)
    if last is not None:
        yield last, told.book
