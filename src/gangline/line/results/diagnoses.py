"""What bound a gang that trained, and what was slow in it: from events of its rank 0 and phases of its ranks."""

from collections.abc import Sequence
from contextlib import suppress
from itertools import chain

from gangline.errors import IntegrityError
from gangline.fabric.telemetry import diagnose_slow_ranks, diagnose_stages
from gangline.line.gangs.attempts import EVENTS, FinishedGang, attempt_files
from gangline.line.record.context import RunContext
from gangline.line.results.bound import ShardReads, diagnose_bound
from gangline.line.results.loss_curve import each_line
from gangline.spec.measurements import Diagnosis, RankRow
from gangline.spec.output_limits import MOST_EVENT_BYTES
from gangline.storage.objects.growing_file import GrowingFile

MOST_DIAGNOSES = 16


def read_diagnoses(ctx: RunContext, finished: FinishedGang, ranks: Sequence[RankRow]) -> tuple[Diagnosis, ...]:
    """What bounds the training, then the costliest first; of a gang whose waits are not measured the bound alone."""
    plan, events = finished.plan, list[GrowingFile]()
    with suppress(IntegrityError):  # too many events: the summary of the training says so
        events = attempt_files(ctx.store, plan, EVENTS, finished.attempts, most_bytes=MOST_EVENT_BYTES)[-1:]
    totals = [(row.phases, sum(row.phases.values())) for row in ranks]
    shares = [{phase: each / total for phase, each in phases.items()} for phases, total in totals if total]
    bound = diagnose_bound(
        shares, source=plan.data, measures_waits=plan.device != "cuda",
        reads=ShardReads.of(chain.from_iterable(map(each_line, events))),
    )  # fmt: skip
    if plan.device == "cuda":
        return bound
    nodes = {row.rank: row.node for row in ranks if row.node}
    slow = diagnose_slow_ranks(
        chain.from_iterable(map(each_line, events)), mesh=plan.mesh, global_batch=plan.global_batch, nodes=nodes,
        weighs_samples=not plan.averages_rarely,
    )  # fmt: skip
    return (*bound, *slow, *diagnose_stages(ranks, mesh=plan.mesh))[:MOST_DIAGNOSES]
