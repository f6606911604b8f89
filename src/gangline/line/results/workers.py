"""What the workers and servers of a run did, from the pushes and the heads that they left in the store."""

from collections.abc import Iterable, Sequence

from gangline.errors import IntegrityError
from gangline.line.gangs import launchers
from gangline.line.record.context import RunContext
from gangline.line.request.trust import checkpoint_owner
from gangline.report.gang_bars import workers_words
from gangline.spec.parameter_server import WorkersSummary, WorkerTotals
from gangline.storage.objects.protocol import list_all
from gangline.train.parameters.layout import BlockPush, Head, ParameterKeys, ParameterStore, RowLayout

MOST_PUSHES = 5000
"""Pushes that are read one by one; of a run with more the blocks of each worker are not known."""


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
        numbers = [shard.number for shard in layout[0].shards()]
        heads = [kept[0] for number in numbers if (kept := objects.read(Head, objects.keys.head(number))) is not None]
        keys = [entry.key for entry in list_all(ctx.store, objects.keys.pushes)]
        few = keys if len(keys) <= MOST_PUSHES else ()
        pushes = [sent[0] for each in few if (sent := objects.read(BlockPush, each)) is not None]
        for head in heads:
            head.require_figures()
        for push in pushes:
            push.require_figures()
    except IntegrityError as error:
        ctx.record_event("train", "workers", f"what workers did is not known: {error}")
        return None
    summary = summarize_workers(pushes, heads)
    ctx.record_event("train", "workers", workers_words(summary))
    return summary


def summarize_workers(pushes: Iterable[BlockPush], heads: Sequence[Head]) -> WorkersSummary:
    """Summary of pushes and heads. Pure."""
    by_worker: dict[int, list[BlockPush]] = {}
    for push in pushes:
        by_worker.setdefault(push.worker, []).append(push)
    merged = sum(head.merged for head in heads)
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
