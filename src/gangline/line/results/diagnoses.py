"""What was slow in a gang that trained: from the events of its rank 0 and the phases of its ranks."""

from collections.abc import Sequence
from itertools import chain

from gangline.errors import IntegrityError
from gangline.fabric.telemetry import diagnose_slow_ranks, diagnose_stages
from gangline.line.gangs.attempts import EVENTS, FinishedGang, attempt_files
from gangline.line.record.context import RunContext
from gangline.line.results.loss_curve import each_line
from gangline.spec.measurements import Diagnosis, RankRow
from gangline.spec.output_limits import MOST_EVENT_BYTES

MOST_DIAGNOSES = 16


def read_diagnoses(ctx: RunContext, finished: FinishedGang, ranks: Sequence[RankRow]) -> tuple[Diagnosis, ...]:
    """The costliest first; none of a gang whose waits are not measured, or whose events are invalid."""
    plan = finished.plan
    if plan.device == "cuda":
        return ()
    try:
        files = attempt_files(ctx.store, plan, EVENTS, finished.attempts, most_bytes=MOST_EVENT_BYTES)[-1:]
        nodes = {row.rank: row.node for row in ranks if row.node}
        slow = diagnose_slow_ranks(
            chain.from_iterable(map(each_line, files)), mesh=plan.mesh, global_batch=plan.global_batch, nodes=nodes,
            weighs_samples=not plan.averages_rarely,
        )  # fmt: skip
    except IntegrityError:  # too many events: the summary of the training says so
        slow = ()
    return (*slow, *diagnose_stages(ranks, mesh=plan.mesh))[:MOST_DIAGNOSES]
