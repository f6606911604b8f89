"""The series of a run's ranks as they stood while it trained, read again from the events that the store keeps."""

from collections.abc import Iterator

from gangline.line.curve import each_line
from gangline.line.output_limits import MOST_EVENT_BYTES
from gangline.metrics.book import Book
from gangline.metrics.replay import replay
from gangline.spec.record import Record
from gangline.storage.growing import find_grown
from gangline.storage.protocol import ObjectStore


def rank_moments(store: ObjectStore, record: Record, *, every_seconds: float) -> Iterator[tuple[float, Book]]:
    """Rank after rank, each from its start to its end; a book is read before the next is asked for.

    Raises:
        StorageError: The store is away.
        IntegrityError: A rank told more than is read.
    """
    world_size = record.plan.world_size if record.plan else 0
    for rank in range(world_size):
        found = find_grown(store, f"{record.gang_prefix}/ranks/{rank}.jsonl")
        if found is None:
            continue
        found.demand(MOST_EVENT_BYTES)
        events = each_line(found)
        yield from replay(events, run=record.run.id, rank=rank, every_seconds=every_seconds, world_size=world_size)
