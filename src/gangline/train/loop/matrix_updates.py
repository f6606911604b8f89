"""Event of a matrix rule at the end of a generation, from rank 0: who computed how many updates, and the plan."""

from typing import Any

from torch.optim import Optimizer

from gangline.checkpoint.peers import Peers
from gangline.optim.executors.matrix_executor import MatrixExecutor
from gangline.optim.plan.optimizer_plan import OptimPlan
from gangline.optim.plan.owners import least_makespan
from gangline.optim.plan.simulate import largest_bucket, outstanding_bytes
from gangline.spec.measurements import MatrixUpdates
from gangline.train.runtime.context import RankContext

EVENT = "matrix_updates"


def emit_matrix_updates(context: RankContext, optimizer: Optimizer, *, steps: int) -> None:
    """Emit the event of an optimizer with a matrix rule after `steps` steps; collective."""
    executors: tuple[MatrixExecutor, ...] | None = getattr(optimizer, "executors", None)
    if executors is None:
        return
    peers = Peers(context.groups.control if context.plan.world_size > 1 else None)
    by_rank = peers.gather([_updates_of(executor) for executor in executors])
    if context.rank == 0:
        context.events.emit(EVENT, steps=steps, **_merged(by_rank))


def _updates_of(executor: MatrixExecutor) -> dict[str, Any]:
    plan, share = executor.plan, executor.plan.ranks * executor.plan.hosts
    return {
        "plan": plan.plan_hash, "rule": plan.rule, "matrices": len(plan.matrices),
        "holders": share * executor.repeats, "repeats": executor.repeats,
        "computed": executor.computed, "wanted": executor.wanted, "seconds": executor.compute_seconds,
        "loads": executor.own_loads, "late": _late(plan),
        "bound": least_makespan([matrix.seconds for matrix in plan.matrices], share),
    }  # fmt: skip


def _late(plan: OptimPlan) -> dict[str, Any] | None:
    if plan.options.overlap == "off" or plan.ranks == 1:
        return None
    return {
        "buckets": len(plan.buckets), "largest_elements": largest_bucket(plan),
        "are_blocks": plan.options.most_elements is None, "outstanding_bytes": outstanding_bytes(plan),
    }  # fmt: skip


def _all_late(found: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Late updates of all plans of one rank, as one."""
    if not found:
        return None
    return {
        "buckets": sum(each["buckets"] for each in found),
        "largest_elements": max(each["largest_elements"] for each in found),
        "are_blocks": found[0]["are_blocks"],
        "outstanding_bytes": sum(each["outstanding_bytes"] for each in found),
    }


def _merged(by_rank: list[list[dict[str, Any]]]) -> dict[str, Any]:
    """Plans of several sets of ranks as one: stages of a pipeline have one each."""
    updates = [each for own in by_rank for each in own]
    plans = {each["plan"]: each for each in updates}.values()
    ranks = [
        {
            "rank": rank,
            "computed": sum(each["computed"] for each in own),
            "loads": {kind: load for each in own for kind, load in each["loads"].items()},
            "seconds": None if any(each["seconds"] is None for each in own) else sum(each["seconds"] for each in own),
        }
        for rank, own in enumerate(by_rank)
    ]
    return {
        "rule": updates[0]["rule"],
        "matrices": sum(plan["matrices"] for plan in plans),
        "wanted": round(sum(each["wanted"] / each["holders"] for each in updates)),
        "computed": sum(each["computed"] for each in updates),
        "repeats": max(each["repeats"] for each in updates),
        "bound_seconds": max(plan["bound"] for plan in plans),
        "late": _all_late([each["late"] for each in by_rank[0] if each["late"]]),
        "ranks": ranks[: MatrixUpdates.MOST_RANKS],
    }
