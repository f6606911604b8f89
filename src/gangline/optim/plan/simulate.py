"""What an optimizer step takes under a plan. Modelled, pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from gangline.optim.plan.buckets import before_use
from gangline.optim.plan.geometry import SyncRate
from gangline.optim.plan.groups import (
    HostExchangeRate,
    HostItem,
    MicroGroup,
    PipelineTimes,
    group_times,
    run_pipeline,
    unshared,
)
from gangline.optim.plan.optimizer_plan import OptimPlan
from gangline.optim.plan.owners import loads_of
from gangline.spec.forecast import exposed_seconds
from gangline.units import Seconds


@dataclass(frozen=True, kw_only=True, slots=True)
class StepPrediction:
    """Seconds of one mean optimizer step by phase."""

    sync_seconds: float
    """Gradients to owners; hidden by backward as far as it goes."""
    compute_seconds: float
    """Updates of the busiest host of the slowest owner."""
    exchange_seconds: float
    """Gathers and scatters of that owner, hidden or not."""
    step_seconds: float
    """Duration of that owner's pipeline: gather, compute, scatter."""
    publish_seconds: float
    """Updates from owners to all."""
    exposed_seconds: float
    """Part of these that ranks wait for: all, but for what the next forward pass hides where they travel during it."""
    first_refresh_seconds: float
    """Time that step 0 takes beyond a step without refreshes: all roots and bases at once."""


def simulate(
    plan: OptimPlan, *, exchange: HostExchangeRate | None = None, sync: SyncRate | None = None,
    forward_seconds: float = 0.0,
) -> StepPrediction:  # fmt: skip
    """Times of `plan` with these rates; None: those of its options. `forward_seconds` is the computing of the next
    forward pass that may hide updates, which they do where the plan has them travel during it."""
    items = [
        HostItem(
            key=matrix.matrix.key,
            seconds=Seconds(matrix.seconds),
            hosted=matrix.matrix.size(plan.options.element_bytes),
        )
        for matrix in plan.matrices
    ]
    pipelines = [_pipeline(plan, items, groups, exchange or plan.options.exchange) for groups in plan.groups]
    slowest = max(pipelines, key=lambda pipeline: pipeline.total_seconds)
    gradients, updates = _sync_seconds(plan, sync or plan.options.sync)
    hides = forward_seconds if plan.options.overlap == "forward" else 0.0
    order = before_use([matrix.matrix for matrix in plan.matrices], [bucket.places for bucket in plan.buckets])
    places = [matrix.owner * plan.hosts + matrix.host for matrix in plan.matrices]
    refreshes = loads_of(places, [matrix.refresh_seconds for matrix in plan.matrices], plan.ranks * plan.hosts)
    return StepPrediction(
        sync_seconds=gradients, compute_seconds=slowest.compute_seconds, exchange_seconds=slowest.exchange_seconds,
        step_seconds=slowest.total_seconds, publish_seconds=sum(updates),
        exposed_seconds=exposed_seconds([updates[at] for at in order], list(order.values()), hides),
        first_refresh_seconds=max(refreshes),
    )  # fmt: skip


def _pipeline(
    plan: OptimPlan, items: Sequence[HostItem], groups: Sequence[MicroGroup], rate: HostExchangeRate
) -> PipelineTimes:
    if plan.hosts == 1:
        return unshared(sum(items[at].seconds.value for group in groups for host in group for at in host))
    return run_pipeline(group_times(items, groups, rate))


def _sync_seconds(plan: OptimPlan, rate: SyncRate) -> tuple[float, list[float]]:
    """Gradients of all buckets, and updates of each; nothing travels to the only rank."""
    if plan.ranks == 1:
        return 0.0, [0.0 for _ in plan.buckets]
    buckets = [
        size * (plan.ranks - 1) / plan.ranks / rate.bytes_per_second + bucket.operations * rate.latency_seconds
        for size, bucket in zip(_bucket_bytes(plan), plan.buckets, strict=True)
    ]
    return sum(buckets), buckets


def _bucket_bytes(plan: OptimPlan) -> list[float]:
    """Bytes that each rank has of the updates of each bucket once they arrived, padding included."""
    return [
        sum(plan.matrices[at].matrix.elements.value for at in bucket.places) * bucket.padded / plan.hosts
        * plan.options.element_bytes
        for bucket in plan.buckets
    ]  # fmt: skip


def sent_updates(plan: OptimPlan) -> float:
    """Bytes that a rank sends until all copies have all updates, by the formula of a ring, padding included."""
    return sum(_bucket_bytes(plan)) * (plan.ranks - 1) / plan.ranks


def outstanding_bytes(plan: OptimPlan) -> float:
    """Bytes that a rank holds from the end of a step until the next forward pass applied them: all updates, where they
    travel during that pass."""
    return sum(_bucket_bytes(plan)) if plan.options.overlap == "forward" and plan.ranks > 1 else 0.0


def largest_bucket(plan: OptimPlan) -> int:
    """Elements of a rank in the largest bucket, without padding."""
    elements = (sum(plan.matrices[at].matrix.elements.value for at in bucket.places) for bucket in plan.buckets)
    return round(max(elements) / plan.hosts)
