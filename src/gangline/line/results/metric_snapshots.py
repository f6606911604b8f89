"""Snapshots of the series of a run's ranks while it trained, rebuilt from the stored events."""

from collections.abc import Iterator

from gangline.line.results.loss_curve import each_line
from gangline.metrics.replay import replay
from gangline.metrics.series_store import SeriesStore
from gangline.spec.output_limits import MOST_EVENT_BYTES
from gangline.spec.record import Record
from gangline.storage.objects.growing_file import find_growing_file
from gangline.storage.objects.protocol import ObjectStore


def rank_metric_snapshots(
    store: ObjectStore, record: Record, *, every_seconds: float
) -> Iterator[tuple[float, SeriesStore]]:
    """Rank after rank, each from its start to its end; a book is read before the next is asked for.

    Raises:
        StorageError: The store is away.
        IntegrityError: A rank told more than is read.
    """
    world_size = record.plan.world_size if record.plan else 0
    for rank in range(world_size):
        found = find_growing_file(store, f"{record.gang_prefix}/ranks/{rank}.jsonl")
        if found is None:
            continue
        found.demand(MOST_EVENT_BYTES)
        events = each_line(found)
        yield from replay(events, run=record.run.id, rank=rank, every_seconds=every_seconds, world_size=world_size)
