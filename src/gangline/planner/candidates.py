"""Candidates of a plan: evaluates every shape that a line may get, and ranks those that fit.

The objective of the line (time or money) decides within its bounds. Times come from earlier runs and from forecasts;
where the first shape of the fixed order has no time, that order decides: fewest memory savings, then least traffic. How
much communication overlaps with compute is unknown before a run: a shape beats a simpler one where it is faster by more
than the band both without any overlap and with full overlap.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gangline.errors import ConfigError
from gangline.planner.budget import Excess
from gangline.planner.contest import Contender, TimeBounds, winner
from gangline.planner.layouts.degrees import require_cuts, require_one_node
from gangline.planner.layouts.enumerate import cut_shapes, unused_axes
from gangline.planner.layouts.layout import Shape, data_parallel_shapes, explicit_shape, shape_of
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
    """An order, and what it was made of."""

    order: Sequence[Shape] = ()
    """Best first."""
    first: Shape | None = None
    """First shape of the fixed order; None: nothing fits."""
    times: Mapping[Shape, TimeBounds] = field(default_factory=dict)
    """Seconds of a step that can be compared with each other; empty: the fixed order decided."""
    costs: Mapping[Shape, TimeBounds] = field(default_factory=dict)
    """What the line wants least of: seconds of a step, or seconds of GPUs; of those that competed."""
    over: Mapping[Shape, Excess] = field(default_factory=dict)
    """Shapes beyond the bounds."""


def rank(request: PlanRequest, runnable: Sequence[Shape]) -> Ranking:
    """Order those of `runnable` that fit."""
    fitting = [shape for shape in runnable if request.fit(shape).holds]
    fitting.sort(key=lambda shape: _fixed_order(request, shape))
    times = _comparable(request, fitting)
    if not fitting or fitting[0] not in times:
        return Ranking(order=fitting, first=fitting[0] if fitting else None)
    costs = {
        shape: bounds.times(shape.mesh.world_size if request.counts_money else 1)
        for shape, bounds in times.items()
        if shape == fitting[0] or not _leaves_ranks_idle(request, shape)
    }
    over = {shape: found for shape in costs if (found := request.excess(request.forecast(shape))) is not None}
    entries = [
        Contender(plan=shape, cost=costs[shape], axes=shape.mesh.num_axes, excess=over.get(shape))
        for shape in fitting
        if shape in costs
    ]
    best = winner(entries, band=request.band, by_cost=False)
    others = sorted(
        (shape for shape in fitting if shape != best),
        key=lambda shape: (shape not in costs, shape in over, costs[shape].most if shape in costs else 0.0),
    )
    return Ranking(order=[best, *others], first=fitting[0], times=times, costs=costs, over=over)


def _comparable(request: PlanRequest, shapes: Sequence[Shape]) -> dict[Shape, TimeBounds]:
    """Measured times, and forecasts of other shapes with them: by the share that the fastest measured one was off,
    these are off, too. Without a forecast of any measured one, only measured times are compared."""
    measured = {shape: seconds for shape in shapes if (seconds := request.seconds(shape)) is not None}
    forecast = {shape: bounds for shape in shapes if (bounds := request.time_bounds(shape)) is not None}
    known = {shape: TimeBounds.exactly(seconds) for shape, seconds in measured.items()}
    both = [shape for shape in measured if shape in forecast]
    if measured and not both:
        return known
    if both:
        best = min(both, key=lambda shape: measured[shape])
        most, least = measured[best] / forecast[best].most, measured[best] / forecast[best].least
        forecast = {shape: TimeBounds(bounds.most * most, bounds.least * least) for shape, bounds in forecast.items()}
    return forecast | known


def _fixed_order(request: PlanRequest, shape: Shape) -> tuple[bool, bool, int, int]:
    """The host comes last, a rank alone before it, then whatever cuts the model; `sort` keeps what is equal."""
    effort = request.setting(shape).effort
    mesh = shape.mesh
    auto = request.line.train.strategy == "auto"
    cuts = (mesh.tp > 1) + (mesh.pp > 1) + (mesh.cp > 1) + (mesh.ep > 1) if auto else 0
    return effort >= OFFLOAD_EFFORT, shape.traits is ONE_RANK, cuts, effort


def _leaves_ranks_idle(request: PlanRequest, shape: Shape) -> bool:
    """A rank alone, where the line wants more, or where a gang of cores rehearses one of GPUs."""
    ranks = request.line.train.ranks
    least = ranks[0] if isinstance(ranks, tuple) else 1 if ranks == "auto" else ranks
    return shape.traits is ONE_RANK and (least > 1 or request.pool.device == "cpu")


@dataclass(frozen=True, kw_only=True, slots=True)
class EvaluatedShapes:
    """Every shape that was evaluated, in one of three places."""

    ranking: Ranking
    """Order of those that fit."""
    too_large: list[Shape]
    unsupported: dict[Shape, str]
    """Shapes that ranks cannot run, with the reason."""

    @property
    def ranked(self) -> Sequence[Shape]:
        """Shapes that fit, the best first."""
        return self.ranking.order

    @property
    def order(self) -> list[Shape]:
        """Shapes that run, the best first; those that do not fit are last."""
        return [*self.ranked, *self.too_large]


def evaluate_shapes(request: PlanRequest) -> EvaluatedShapes:
    """Weigh what the line asks for; left to itself all that shares data, and all that cuts the model where forecasts
    can say what that is worth, or where sharing data fits in no way.

    Raises:
        ConfigError: The line asks for what the runtime or the inventory does not have, or nothing can have its options.
    """
    line, pool, profile = request.line, request.pool, request.profile
    require_options(line)
    if line.train.strategy != "auto":
        return _sort(request, [_asked_shape(line, pool, profile)])
    shapes = data_parallel_shapes(line, pool, profile)
    evaluated = _sort(request, shapes)
    if profile is not None and (
        _is_timed(request, evaluated) or not any(_fits_without_host(request, each) for each in evaluated.ranked)
    ):
        evaluated = _sort(request, [*shapes, *cut_shapes(line, pool, profile)])
        evaluated.unsupported.update(unused_axes(line, pool, profile))
    return evaluated


def fitting_plan(request: PlanRequest) -> FittingPlan | None:
    """What would be chosen; None: nothing fits."""
    try:
        ranked = evaluate_shapes(request).ranked
    except ConfigError:
        return None
    if not ranked:
        return None
    bounds = request.time_bounds(ranked[0])
    return FittingPlan(ranked[0].name, None if bounds is None else bounds.most, request.fit(ranked[0]).need_bytes)


def _sort(request: PlanRequest, shapes: Sequence[Shape]) -> EvaluatedShapes:
    reasons = {shape: _refusal_reason(request, shape) for shape in shapes}
    runnable = [shape for shape in shapes if reasons[shape] is None]
    if not runnable:
        raise ConfigError(next(reason for reason in reasons.values() if reason))
    return EvaluatedShapes(
        ranking=rank(request, runnable),
        too_large=[shape for shape in runnable if not request.fit(shape).holds],
        unsupported={shape: reason for shape, reason in reasons.items() if reason is not None},
    )


def _refusal_reason(request: PlanRequest, shape: Shape) -> str | None:
    return offload_obstacle(request.line, shape, request.pool.device) or refusal_reason(
        request.line, shape, request.profile
    )


def _is_timed(request: PlanRequest, evaluated: EvaluatedShapes) -> bool:
    """Forecasts say how long the first plan of the fixed order takes, and so what another one is worth."""
    first = evaluated.ranking.first
    return first is not None and request.formula(first).step_seconds is not None


def _fits_without_host(request: PlanRequest, shape: Shape) -> bool:
    """It fits without the host's memory."""
    return request.setting(shape).effort < OFFLOAD_EFFORT


def _asked_shape(line: Line, pool: Pool, profile: ModelProfile | None) -> Shape:
    strategy = line.train.strategy
    if strategy == "explicit":
        shape = explicit_shape(line)
        require_cuts(shape.mesh.tp, profile)
        require_task(line, shape.mesh)
        require_axes(shape.mesh, profile)
        require_runnable(shape.strategy, key="train.mesh")
        check_world(line, pool, shape.mesh.world_size, shares=shape.mesh.data_parallel, key="train.mesh")
        require_one_node(shape.mesh, ranks_per_node(pool, shape.mesh.world_size))
        return shape
    require_runnable(strategy)
    world = 1 if traits_of(strategy) is ONE_RANK else choose_world(line, pool)
    shape = shape_of(strategy, world, num_nodes(pool, world), profile)
    require_task(line, shape.mesh)
    require_axes(shape.mesh, profile)
    return shape
