"""What the workers and servers of a run did, from the pushes and the heads that they left in the store."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gangline.errors import IntegrityError
from gangline.line.gangs import launchers
from gangline.line.record.context import RunContext
from gangline.line.request.trust import checkpoint_owner
from gangline.storage.objects.protocol import list_all
from gangline.train.parameters.layout import BlockPush, Head, ParameterKeys, ParameterStore, RowLayout
from gangline.units import format_bytes, format_seconds

MOST_PUSHES = 5000
"""Pushes that are read one by one; of a run with more the blocks of each worker are not known."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkerTotals:
    """All pushes of one worker."""

    worker: int
    blocks: int
    seconds: float
    """Time of its blocks."""
    sent_bytes: int
    received_bytes: int
    silent_seconds: float
    """Time without an answer of the store."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkersSummary:
    """All workers of a run, and what the servers did with their pushes."""

    workers: tuple[WorkerTotals, ...]
    merges: int
    """Versions of the shard that has most."""
    age_mean: float
    """Mean age of merged pushes, over all shards."""
    dropped: int
    """Blocks that were too old, in the shard that has most of them."""
    refused: int
    """Blocks that were refused, in the shard that has most of them."""

    @property
    def text(self) -> str:
        """Sentence for the record."""
        blocks = ", ".join(f"{each.worker}: {each.blocks}" for each in self.workers) or "not known"
        sent, received = (
            sum(getattr(each, name) for each in self.workers) for name in ("sent_bytes", "received_bytes")
        )
        parts = [f"blocks by worker {blocks}", f"{self.merges} merges, age of pushes {self.age_mean:.1f} on average"]
        parts.append(f"{self.dropped} blocks dropped, {self.refused} refused")
        if self.workers:
            parts.append(f"{format_bytes(sent)} sent, {format_bytes(received)} received")
        if silent := sum(each.silent_seconds for each in self.workers):
            parts.append(f"{format_seconds(silent)} without the store")
        return " \u00b7 ".join(parts)


def read_workers(ctx: RunContext) -> WorkersSummary | None:
    """Summary of a run with a parameter server, recorded; None: it has none, or its objects are damaged."""
    plan = ctx.plan
    if plan.parameters is None:
        return None
    key = launchers.checkpoint_key(ctx.site, ctx.environ, checkpoint_owner(ctx.record))
    objects = ParameterStore(ctx.store, ParameterKeys.of(plan), plan.run, key)
    try:
        layout = objects.read(RowLayout, objects.keys.layout)
        if layout is None:
            return None
        numbers = [each.number for each in layout[0].shards()]
        heads = [head[0] for each in numbers if (head := objects.read(Head, objects.keys.head(each))) is not None]
        keys = [entry.key for entry in list_all(ctx.store, objects.keys.pushes)]
        few = keys if len(keys) <= MOST_PUSHES else ()
        pushes = [push[0] for each in few if (push := objects.read(BlockPush, each)) is not None]
    except IntegrityError as error:
        ctx.record_event("train", "workers", f"what workers did is not known: {error}")
        return None
    summary = summarize_workers(pushes, heads)
    ctx.record_event("train", "workers", summary.text)
    return summary


def summarize_workers(pushes: Iterable[BlockPush], heads: Sequence[Head]) -> WorkersSummary:
    """Summary of pushes and heads. Pure."""
    by_worker: dict[int, list[BlockPush]] = {}
    for push in pushes:
        by_worker.setdefault(push.worker, []).append(push)
    merged = sum(head.done.count - head.dropped - head.refused for head in heads)
    return WorkersSummary(
        workers=tuple(_totals(worker, own) for worker, own in sorted(by_worker.items())),
        merges=max((head.version for head in heads), default=0),
        age_mean=sum(head.age_sum for head in heads) / merged if merged else 0.0,
        dropped=max((head.dropped for head in heads), default=0),
        refused=max((head.refused for head in heads), default=0),
    )


def _totals(worker: int, pushes: Sequence[BlockPush]) -> WorkerTotals:
    return WorkerTotals(
        worker=worker,
        blocks=len(pushes),
        seconds=round(sum(push.seconds for push in pushes), 3),
        sent_bytes=sum(push.wire_bytes[0] for push in pushes),
        received_bytes=sum(push.wire_bytes[1] for push in pushes),
        silent_seconds=round(sum(push.silent_seconds for push in pushes), 3),
    )
