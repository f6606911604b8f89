"""A plan in words and figures, each with its bound or its condition. Pure."""

from collections.abc import Sequence

from gangline.optim.plan.optimizer_plan import OptimPlan
from gangline.optim.plan.phases import assumed_rates, phases, rank_shares
from gangline.optim.plan.simulate import StepPrediction, largest_bucket, outstanding_bytes, simulate
from gangline.units import format_bytes

MOST_STAGES = 16
"""Pipeline ranks with a line each."""
MOST_RANKS = 8
"""Rows of the table of owners."""
_GEOMETRY = {
    "contiguous": "G1, uneven slices in model order",
    "permuted": "G2, equal shards ordered by owner",
    "owner": "G3, each matrix to its owner",
}


def explain(plan: OptimPlan, prediction: StepPrediction | None = None, *, averaged: bool = True) -> str:
    """Lines for a terminal: routing, balance, synchronization, groups, times and what is unusual.

    Args:
        plan: Any plan.
        prediction: Times to print; None: those of its own rates.
        averaged: All copies get all sums of gradients; not where the state of a matrix is its owner's alone.
    """
    times = prediction or simulate(plan)
    parts = [
        _head(plan),
        _costs(plan),
        _balance(plan),
        _sync(plan),
        _groups(plan),
        _phases(plan, times, averaged),
        _times(times),
        _rates(plan, prediction is not None),
        _overlap(plan, times),
        *_unusual(plan, times),
    ]
    return "\n".join(part for part in parts if part)


def explain_stages(
    plans: Sequence[OptimPlan], prediction: StepPrediction | None = None, *, averaged: bool = True
) -> str:
    """The step of each pipeline rank, and the plan of the slowest; of one plan `explain`; of none nothing."""
    if len(plans) < 2:
        return "\n".join(explain(plan, prediction, averaged=averaged) for plan in plans)
    steps = [simulate(plan).step_seconds for plan in plans]
    slowest = _slowest(plans)
    stages = [
        f"pipeline rank {rank}: {_count(len(plan.matrices), 'matrix', 'matrices')}, step {_ms(steps[rank])}"
        for rank, plan in enumerate(plans[:MOST_STAGES])
    ]
    if len(plans) > MOST_STAGES:
        stages.append(f"and {len(plans) - MOST_STAGES} more")
    return "\n".join([*stages, f"the slowest, rank {slowest}:", explain(plans[slowest], averaged=averaged)])


def explain_ranks(plans: Sequence[OptimPlan]) -> list[str]:
    """Lines of `rank_table` of the slowest pipeline rank; of no plan none."""
    return rank_table(plans[_slowest(plans)]) if plans else []


def _slowest(plans: Sequence[OptimPlan]) -> int:
    return max(range(len(plans)), key=lambda rank: simulate(plans[rank]).step_seconds)


def rank_table(plan: OptimPlan) -> list[str]:
    """Lines of a table: who computes how much, the most loaded rank first, as far as MOST_RANKS."""
    shares = rank_shares(plan)
    mean = sum(share.seconds for share in shares) / len(shares)
    lines = [f"{'owner':>5}  {'host':>4}  {'matrices':>8}  {'compute':>11}  {'of mean':>7}  {'of matrices':>11}"]
    lines += [
        f"{share.owner:5}  {share.host:4}  {share.matrices:8,}  {_ms(share.seconds):>11}  {share.seconds / mean:7.2f}  "
        f"{format_bytes(share.matrix_bytes):>11}"
        for share in shares[:MOST_RANKS]
    ]
    if rest := shares[MOST_RANKS:]:
        lines.append(f"and {_count(len(rest), 'rank')} with {_ms(rest[-1].seconds)} to {_ms(rest[0].seconds)}")
    return lines


def _head(plan: OptimPlan) -> str:
    return (
        f"{plan.rule}: {_count(len(plan.matrices), 'matrix', 'matrices')}, {_count(plan.ranks, 'owner')} x "
        f"{_count(plan.hosts, 'host')}, "
        f"{'each copy computes all, ' if plan.options.copies == 'repeat' else ''}plan {plan.plan_hash[:12]}"
    )


def _costs(plan: OptimPlan) -> str:
    """Where the seconds of updates come from."""
    device = plan.options.device
    shapes = {tuple(sorted(matrix.matrix.shape)) for matrix in plan.matrices}
    known = {
        row.shape for row in device.table
        if (row.rule, row.dtype) == (plan.rule, plan.dtype) and row.batch <= plan.options.batch
    }  # fmt: skip
    measured = len(shapes & known)
    if not measured:
        none = f"; none is measured on {device.source}" if device.source else ""
        return f"costs    by operations and an assumed rate{none}"
    rest = "" if measured == len(shapes) else ", others by operations, scaled to it"
    return f"costs    measured, {measured} of {_count(len(shapes), 'shape')}: {device.source}{rest}"


def _balance(plan: OptimPlan) -> str:
    state = max(plan.owner_state_bytes)
    proved = ", optimal" if plan.ratio <= plan.bound_ratio * (1 + 1e-9) else ""
    return f"balance  max/mean {plan.ratio:.3f} (bound {plan.bound_ratio:.3f}{proved})" + (
        f"; owner state at most {format_bytes(state)} per owner" if state else ""
    )


def _sync(plan: OptimPlan) -> str:
    if plan.ranks == 1:
        return ""
    buckets = _count(len(plan.buckets), "bucket")
    if plan.options.most_elements is None:
        buckets += f" by block, up to {largest_bucket(plan):,} elements a rank (chosen)"
    operations = _count(sum(bucket.operations for bucket in plan.buckets), "operation")
    return f"updates  {_GEOMETRY[plan.geometry]}: {buckets}, {operations}, {plan.price:.2f} of an ideal ring's time"


def _groups(plan: OptimPlan) -> str:
    if plan.hosts == 1:
        return ""
    counts = [len(groups) for groups in plan.groups]
    sizes = [matrix.matrix.size(plan.options.element_bytes).value for matrix in plan.matrices]
    largest = max(sum(sizes[at] for at in host) for groups in plan.groups for group in groups for host in group)
    return (
        f"groups   {min(counts)} to {max(counts)} of an owner, slots up to {format_bytes(largest)} "
        f"(c_max {format_bytes(plan.options.c_max_bytes)})"
    )


def _phases(plan: OptimPlan, times: StepPrediction, averaged: bool) -> str:
    """Bytes that a rank sends, and how long that takes."""
    found = [
        f"{phase.name} {format_bytes(phase.sent_bytes)} {_ms(phase.seconds)}"
        for phase in phases(plan, times, averaged=averaged)
        if phase.sent_bytes
    ]
    return f"phases   {', '.join(found)} (sent by a rank)" if found else ""


def _rates(plan: OptimPlan, is_forecast: bool) -> str:
    """Where the milliseconds of phases come from."""
    found = [rate for rate in assumed_rates(plan) if not (is_forecast and "copies" in rate)]
    by_forecast = "; among copies as the forecast counts" if is_forecast and plan.ranks > 1 else ""
    if not found:
        return f"rates    {by_forecast.removeprefix('; ')}" if by_forecast else ""
    return f"rates    assumed, not measured: {', '.join(found)}{by_forecast}"


def _times(times: StepPrediction) -> str:
    exchange = f", exchange among hosts {_ms(times.exchange_seconds)} in parallel" if times.exchange_seconds else ""
    publish = f", updates to all copies {_ms(times.publish_seconds)}" if times.publish_seconds else ""
    made_of = f"compute {_ms(times.compute_seconds)}{exchange}{publish}"
    return f"step     {_ms(times.step_seconds)} of matrices alone: {made_of} (modelled)"


def _overlap(plan: OptimPlan, times: StepPrediction) -> str:
    """What updates that travel during the forward pass cost and save."""
    if plan.options.overlap == "off" or plan.ranks == 1:
        return ""
    hidden = times.publish_seconds - times.exposed_seconds
    return (
        f"overlap  updates travel {_ms(times.publish_seconds)} during the next forward pass, which hides {_ms(hidden)} "
        f"and waits for {_ms(times.exposed_seconds)}; until then a rank holds "
        f"{format_bytes(outstanding_bytes(plan))} of them"
    )


def _count(number: int, noun: str, nouns: str = "") -> str:
    return f"{number:,} {noun if number == 1 else nouns or noun + 's'}"


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:.2f} ms"


def _unusual(plan: OptimPlan, times: StepPrediction) -> list[str]:
    oversize = [matrix for matrix in plan.matrices if matrix.is_oversize]
    shared = [matrix for matrix in plan.matrices if matrix.team]
    lines = []
    if oversize:
        first = " ".join(oversize[0].matrix.key).strip()
        lines.append(f"oversize {len(oversize)} matrices above c_max have slots of their own, the first is {first}")
    if shared:
        sizes = sorted({len(matrix.team) for matrix in shared})
        lines.append(
            f"teams    {len(shared)} matrices are shared by {' or '.join(map(str, sizes))} owners: not bitwise equal"
            " to one owner's updates"
        )
    if times.first_refresh_seconds:
        lines.append(
            f"refresh  every {plan.refresh_every} steps, in phases; step 0 computes all roots and bases: "
            f"{_ms(times.first_refresh_seconds)} more"
        )
    return lines
