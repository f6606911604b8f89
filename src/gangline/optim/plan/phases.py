"""A plan as a table for people and as a document: bytes and seconds by phase, and what each rank has to do. Pure."""

from dataclasses import dataclass
from typing import Literal

from gangline.optim.plan.optimizer_plan import OptimPlan
from gangline.optim.plan.simulate import StepPrediction, sent_updates

PhaseName = Literal["gradients", "gather", "compute", "scatter", "updates"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Phase:
    """One part of a step of a matrix rule."""

    name: PhaseName
    """`gradients` among copies; `gather`, `compute`, `scatter` of matrices on their hosts; `updates` to all copies."""
    sent_bytes: float
    """Bytes sent by a rank of the slowest owner, on average over its hosts; of collectives by the formula of a ring."""
    seconds: float
    """Modelled; phases overlap, so their sum is no step."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PlannedShare:
    """What one rank computes of the step."""

    owner: int
    """Place among ranks that hold the same parts."""
    host: int
    """Place among ranks that a matrix is cut over."""
    matrices: int
    """Number of matrices, with those that it shares with a team."""
    seconds: float
    """Duration of updates in a mean step, modelled or measured."""
    matrix_bytes: float
    """Bytes of its matrices, whole, in the dtype that travels."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MatrixPlanReport:
    """The plan of a matrix rule on the ranks that hold one stage of the model, in `gangline plan --why --json`."""

    rule: str
    plan_hash: str
    """The same on all ranks."""
    matrices: int
    owners: int
    hosts: int
    ratio: float
    """Largest load of an owner over the mean."""
    bound_ratio: float
    """What no map of owners is below."""
    geometry: str
    """How updates reach the copies."""
    owner_state_bytes: int
    """State of the owner that keeps most, on all of its hosts together."""
    step_seconds: float
    """Gather, compute and scatter of the slowest owner."""
    exposed_seconds: float
    """Time that ranks wait for updates to all copies."""
    first_refresh_seconds: float
    """Time that step 0 takes beyond a step without refreshes."""
    rates_assumed: tuple[str, ...]
    """Rates behind these seconds that were not measured, in words."""
    phases: tuple[Phase, ...]
    ranks: tuple[PlannedShare, ...]
    """The most loaded first."""


def report_of(plan: OptimPlan, times: StepPrediction, *, averaged: bool) -> MatrixPlanReport:
    """Report of `plan` by these `times`; `averaged` as of `phases`."""
    return MatrixPlanReport(
        rule=plan.rule, plan_hash=plan.plan_hash, matrices=len(plan.matrices), owners=plan.ranks, hosts=plan.hosts,
        ratio=plan.ratio, bound_ratio=plan.bound_ratio, geometry=plan.geometry,
        owner_state_bytes=max(plan.owner_state_bytes), step_seconds=times.step_seconds,
        exposed_seconds=times.exposed_seconds, first_refresh_seconds=times.first_refresh_seconds,
        rates_assumed=assumed_rates(plan), phases=phases(plan, times, averaged=averaged), ranks=rank_shares(plan),
    )  # fmt: skip


def phases(plan: OptimPlan, times: StepPrediction, *, averaged: bool) -> tuple[Phase, ...]:
    """Phases in the order of a step; those in which nothing is sent and nothing computed are left out.

    Args:
        plan: Of one stage.
        times: Of that plan.
        averaged: All copies get all sums of gradients, which takes twice what owners alone would.
    """
    passes = 2 if averaged else 1
    hosted = max(
        sum(matrix.matrix.size(plan.options.element_bytes).value for matrix in plan.matrices if matrix.owner == owner)
        for owner in range(plan.ranks)
    )
    moved = hosted * (plan.hosts - 1) / plan.hosts**2
    found = (
        Phase(name="gradients", sent_bytes=passes * sent_updates(plan), seconds=passes * times.sync_seconds),
        Phase(name="gather", sent_bytes=moved, seconds=times.exchange_seconds / 2),
        Phase(name="compute", sent_bytes=0.0, seconds=times.compute_seconds),
        Phase(name="scatter", sent_bytes=moved, seconds=times.exchange_seconds / 2),
        Phase(name="updates", sent_bytes=sent_updates(plan), seconds=times.publish_seconds),
    )
    return tuple(phase for phase in found if phase.seconds or phase.sent_bytes)


def rank_shares(plan: OptimPlan) -> tuple[PlannedShare, ...]:
    """Shares of every rank, the most loaded first."""
    ranks = plan.ranks * plan.hosts
    counts, seconds, sizes = [0] * ranks, [0.0] * ranks, [0.0] * ranks
    for matrix in plan.matrices:
        for owner in matrix.team or (matrix.owner,):
            rank = owner * plan.hosts + matrix.host
            counts[rank] += 1
            seconds[rank] += matrix.seconds
            sizes[rank] += matrix.matrix.size(plan.options.element_bytes).value
    shares = [
        PlannedShare(
            owner=rank // plan.hosts, host=rank % plan.hosts, matrices=counts[rank], seconds=seconds[rank],
            matrix_bytes=sizes[rank],
        )
        for rank in range(ranks)
    ]  # fmt: skip
    return tuple(sorted(shares, key=lambda share: (-share.seconds, share.owner, share.host)))


def assumed_rates(plan: OptimPlan) -> tuple[str, ...]:
    """Rates of the exchanges that this plan has, in words."""
    options, found = plan.options, []
    if plan.ranks > 1:
        found.append(f"{options.sync.bytes_per_second / 1e9:.4g} GB/s among copies (one network card)")
    if plan.hosts > 1:
        found.append(f"{options.exchange.bytes_per_second / 1e9:.4g} GB/s among hosts (NVLink)")
    return tuple(found)
