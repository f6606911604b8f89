"""Candidates of a plan: evaluates every layout that a line may get, and ranks those that fit.

The objective of the line (time or money) decides within its bounds. Times come from earlier runs and from forecasts;
where the first layout of the fixed order has no time, that order decides: fewest memory savings, then least traffic.
How much communication overlaps with compute is unknown before a run: a layout beats a simpler one where it is faster by
more than the band both without any overlap and with full overlap.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from gangline.errors import ConfigError
from gangline.planner.budget import PlanReason
from gangline.planner.contest import Contender, TimeBounds, winner
from gangline.planner.layouts.degrees import require_cuts, require_one_node
from gangline.planner.layouts.enumerate import cut_layouts, unused_axes
from gangline.planner.layouts.layout import Layout, data_parallel_layouts, explicit_layout, layout_of
from gangline.planner.layouts.rules import (
    offload_obstacle,
    refusal_reason,
    require_axes,
    require_options,
    require_runnable,
    require_task,
)
from gangline.planner.pool import Pool, check_world, choose_world, num_nodes, ranks_per_node
from gangline.planner.request import PlanRequest
from gangline.planner.settings import OFFLOAD_EFFORT
from gangline.planner.suggestion import FittingPlan
from gangline.spec.config.line import Line
from gangline.spec.profile import ModelProfile
from gangline.spec.strategies import ONE_RANK, traits_of


@dataclass(frozen=True, kw_only=True, slots=True)
class Ranking:
    """Every layout that was evaluated, in one of three places, and what their order was made of."""

    order: Sequence[Layout] = ()
    """Those that fit, the best first."""
    too_large: Sequence[Layout] = ()
    unsupported: Mapping[Layout, str] = field(default_factory=dict)
    """Those that ranks cannot run, with the reason."""
    first: Layout | None = None
    """First one of the fixed order; None: nothing fits."""
    times: Mapping[Layout, TimeBounds] = field(default_factory=dict)
    """Seconds of a step that can be compared with each other; empty: the fixed order decided."""
    costs: Mapping[Layout, TimeBounds] = field(default_factory=dict)
    """What the line wants least of: seconds of a step, or seconds of GPUs; of those that competed."""
    over: Mapping[Layout, PlanReason] = field(default_factory=dict)
    """Layouts beyond the bounds."""

    @property
    def runnable(self) -> list[Layout]:
        """Layouts that run, the best first; those that do not fit are last."""
        return [*self.order, *self.too_large]


def rank(request: PlanRequest, runnable: Sequence[Layout]) -> Ranking:
    """Order those of `runnable` that fit."""
    fitting = [layout for layout in runnable if request.fit(layout).holds]
    fitting.sort(key=lambda layout: _fixed_order(request, layout))
    times = _comparable(request, fitting)
    if not fitting or fitting[0] not in times:
        return Ranking(order=fitting, first=fitting[0] if fitting else None)
    costs = {
        layout: bounds.times(layout.mesh.world_size if request.counts_money else 1)
        for layout, bounds in times.items()
        if layout == fitting[0] or not _leaves_ranks_idle(request, layout)
    }
    over = {layout: reason for layout in costs if (reason := request.excess(request.forecast(layout))) is not None}
    entries = [
        Contender(plan=layout, cost=costs[layout], axes=layout.num_axes, excess=over.get(layout))
        for layout in fitting
        if layout in costs
    ]
    best = winner(entries, band=request.band, by_cost=False)
    others = sorted(
        (layout for layout in fitting if layout != best),
        key=lambda layout: (layout not in costs, layout in over, costs[layout].most if layout in costs else 0.0),
    )
    return Ranking(order=[best, *others], first=fitting[0], times=times, costs=costs, over=over)


def _comparable(request: PlanRequest, layouts: Sequence[Layout]) -> dict[Layout, TimeBounds]:
    """Measured times, and forecasts of other layouts with them: by the share that the fastest measured one was off,
    these are off, too. Without a forecast of any measured one, only measured times are compared."""
    measured = {layout: seconds for layout in layouts if (seconds := request.seconds(layout)) is not None}
    forecast = {layout: bounds for layout in layouts if (bounds := request.time_bounds(layout)) is not None}
    known = {layout: TimeBounds.exactly(seconds) for layout, seconds in measured.items()}
    both = [layout for layout in measured if layout in forecast]
    if measured and not both:
        return known
    if both:
        best = min(both, key=lambda layout: measured[layout])
        most, least = measured[best] / forecast[best].most, measured[best] / forecast[best].least
        forecast = {layout: TimeBounds(bounds.most * most, bounds.least * least) for layout, bounds in forecast.items()}
    return forecast | known


def _fixed_order(request: PlanRequest, layout: Layout) -> tuple[bool, bool, int, int]:
    """The host comes last, a rank alone before it, then whatever cuts the model; `sort` keeps what is equal."""
    effort = request.setting(layout).effort
    mesh = layout.mesh
    auto = request.line.train.strategy == "auto"
    cuts = (mesh.tp > 1) + (mesh.pp > 1) + (mesh.cp > 1) + (mesh.ep > 1) if auto else 0
    return effort >= OFFLOAD_EFFORT, layout.traits is ONE_RANK, cuts, effort


def _leaves_ranks_idle(request: PlanRequest, layout: Layout) -> bool:
    """A rank alone, where the line wants more, or where a gang of cores rehearses one of GPUs."""
    ranks = request.line.train.ranks
    least = ranks[0] if isinstance(ranks, tuple) else 1 if ranks == "auto" else ranks
    return layout.traits is ONE_RANK and (least > 1 or request.pool.device == "cpu")


def evaluate_layouts(request: PlanRequest) -> Ranking:
    """Weigh what the line asks for; left to itself all that shares data, and all that cuts the model where forecasts
    can say what that is worth, or where sharing data fits in no way.

    Raises:
        ConfigError: The line asks for what the runtime or the inventory does not have, or nothing can have its options.
    """
    line, pool, profile = request.line, request.pool, request.profile
    require_options(line)
    if line.train.strategy != "auto":
        return _sort(request, [_asked_layout(line, pool, profile)])
    layouts = data_parallel_layouts(line, pool, profile)
    ranking = _sort(request, layouts)
    fits_without_host = any(request.setting(layout).effort < OFFLOAD_EFFORT for layout in ranking.order)
    is_timed = ranking.first is not None and request.formula(ranking.first).step_seconds is not None
    if profile is None or (fits_without_host and not is_timed):
        return ranking
    ranking = _sort(request, [*layouts, *cut_layouts(line, pool, profile)])
    return replace(ranking, unsupported={**ranking.unsupported, **dict(unused_axes(line, pool, profile))})


def fitting_plan(request: PlanRequest) -> FittingPlan | None:
    """What would be chosen; None: nothing fits."""
    try:
        ranked = evaluate_layouts(request).order
    except ConfigError:
        return None
    if not ranked:
        return None
    best = ranked[0]
    return FittingPlan(best.name, request.formula(best).step_seconds, request.fit(best).need_bytes)


def _sort(request: PlanRequest, layouts: Sequence[Layout]) -> Ranking:
    line, device = request.line, request.pool.device
    reasons = {
        layout: offload_obstacle(line, layout, device) or refusal_reason(line, layout, request.profile)
        for layout in layouts
    }
    runnable = [layout for layout in layouts if reasons[layout] is None]
    if not runnable:
        raise ConfigError(next(reason for reason in reasons.values() if reason))
    return replace(
        rank(request, runnable),
        too_large=[layout for layout in runnable if not request.fit(layout).holds],
        unsupported={layout: reason for layout, reason in reasons.items() if reason is not None},
    )


def _asked_layout(line: Line, pool: Pool, profile: ModelProfile | None) -> Layout:
    strategy = line.train.strategy
    if strategy == "explicit":
        layout = explicit_layout(line)
        require_cuts(layout.mesh.tp, profile)
        require_task(line, layout.mesh)
        require_axes(layout.mesh, profile)
        require_runnable(layout.strategy, key="train.mesh")
        check_world(line, pool, layout.mesh.world_size, shares=layout.mesh.data_parallel, key="train.mesh")
        require_one_node(layout.mesh, ranks_per_node(pool, layout.mesh.world_size))
        return layout
    require_runnable(strategy)
    world = 1 if traits_of(strategy) is ONE_RANK else choose_world(line, pool)
    layout = layout_of(strategy, world, num_nodes(pool, world), profile)
    require_task(line, layout.mesh)
    require_axes(layout.mesh, profile)
    return layout
