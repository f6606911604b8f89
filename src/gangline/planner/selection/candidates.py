"""Candidates of a plan: evaluates every shape that a line may get, and ranks those that fit.

The objective of the line (time or money) decides within its bounds. Times come from earlier runs and from forecasts;
where the first shape of the fixed order has no time, that order decides: fewest memory savings, then least traffic. How
much communication overlaps with compute is unknown before a run: a shape beats a simpler one where it is faster by more
than the band both without any overlap and with full overlap.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from gangline.errors import ConfigError
from gangline.planner.axes.tensor import require_cuts, require_one_node
from gangline.planner.forecast.memory_options import OFFLOAD_EFFORT, offload_obstacle
from gangline.planner.selection.budget import Excess, excess
from gangline.planner.selection.feasibility import require_axes, require_options, require_runnable, require_task
from gangline.planner.selection.model_cuts import cut_shapes, refused, unused_axes
from gangline.planner.selection.request import PlanRequest, TimeBounds
from gangline.planner.selection.smallest_change import FittingPlan
from gangline.planner.shapes.device_pool import Pool
from gangline.planner.shapes.shape import Shape, data_parallel_shapes, explicit_shape, shape_of
from gangline.planner.shapes.world_size import check_world, choose_world, num_nodes, ranks_per_node
from gangline.spec.config.line import Line
from gangline.spec.profile import ModelProfile
from gangline.spec.strategies import ONE_RANK, traits_of


@dataclass(frozen=True, kw_only=True, slots=True)
class Ranking:
    """An order, and what it was made of."""

    order: Sequence[Shape] = ()
    """Best first."""
    first: Shape | None = None
    """Of the fixed order; None: nothing fits."""
    times: Mapping[Shape, TimeBounds] = field(default_factory=dict)
    """Seconds of a step that can be compared with each other; empty: the fixed order decided."""
    costs: Mapping[Shape, TimeBounds] = field(default_factory=dict)
    """What the line wants least of: seconds of a step, or seconds of GPUs; of those that competed."""
    over: Mapping[Shape, Excess] = field(default_factory=dict)
    """Beyond the bounds."""


def rank(question: PlanRequest, runnable: Sequence[Shape]) -> Ranking:
    """Of `runnable` those that fit."""
    fitting = [shape for shape in runnable if question.fit(shape).holds]
    fitting.sort(key=lambda shape: _fixed_order(question, shape))
    times = _comparable(question, fitting)
    if not fitting or fitting[0] not in times:
        return Ranking(order=fitting, first=fitting[0] if fitting else None)
    costs = {
        shape: pace.times(shape.mesh.world_size if question.counts_money else 1)
        for shape, pace in times.items()
        if shape == fitting[0] or not _leaves_ranks_idle(question, shape)
    }
    over = {shape: found for shape in costs if (found := _beyond(question, shape)) is not None}
    winner = _best(question, fitting, costs, over)
    others = sorted(
        (shape for shape in fitting if shape != winner),
        key=lambda shape: (shape not in costs, shape in over, costs[shape].most if shape in costs else 0.0),
    )
    return Ranking(order=[winner, *others], first=fitting[0], times=times, costs=costs, over=over)


def _best(
    question: PlanRequest, fitting: Sequence[Shape], costs: Mapping[Shape, TimeBounds], over: Mapping[Shape, Excess]
) -> Shape:
    """The simplest within the bounds that nothing else there is clearly below; where none is within, the nearest."""
    place = {shape: number for number, shape in enumerate(fitting)}
    within = [shape for shape in costs if shape not in over]
    if not within:
        return min(costs, key=lambda shape: (over[shape].ratio, place[shape]))
    best = [
        shape
        for shape in within
        if not any(costs[other].is_clearly_below(costs[shape], question.band) for other in within)
    ]
    return min(best, key=lambda shape: (shape.num_axes, place[shape]))


def _comparable(question: PlanRequest, shapes: Sequence[Shape]) -> dict[Shape, TimeBounds]:
    """Measured times, and forecasts of other shapes beside them: of what the fastest measured one was off by, these
    are off, too. Without a forecast of any measured one nothing stands beside what was measured."""
    measured = {shape: seconds for shape in shapes if (seconds := question.seconds(shape)) is not None}
    forecast = {shape: pace for shape in shapes if (pace := question.pace(shape)) is not None}
    known = {shape: TimeBounds(seconds, seconds) for shape, seconds in measured.items()}
    both = [shape for shape in measured if shape in forecast]
    if measured and not both:
        return known
    if both:
        best = min(both, key=lambda shape: measured[shape])
        most, least = measured[best] / forecast[best].most, measured[best] / forecast[best].least
        forecast = {shape: TimeBounds(pace.most * most, pace.least * least) for shape, pace in forecast.items()}
    return forecast | known


def _fixed_order(question: PlanRequest, shape: Shape) -> tuple[bool, bool, int, int]:
    """The host comes last, a rank alone before it, then whatever cuts the model; `sort` keeps what is equal."""
    effort = question.setting(shape).effort
    mesh = shape.mesh
    auto = question.line.train.strategy == "auto"
    cuts = (mesh.tp > 1) + (mesh.pp > 1) + (mesh.cp > 1) + (mesh.ep > 1) if auto else 0
    return effort >= OFFLOAD_EFFORT, shape.traits is ONE_RANK, cuts, effort


def _leaves_ranks_idle(question: PlanRequest, shape: Shape) -> bool:
    """A rank alone, where the line wants more, or where a gang of cores rehearses one of GPUs."""
    ranks = question.line.train.ranks
    least = ranks[0] if isinstance(ranks, tuple) else 1 if ranks == "auto" else ranks
    return shape.traits is ONE_RANK and (least > 1 or question.pool.device == "cpu")


def _beyond(question: PlanRequest, shape: Shape) -> Excess | None:
    site = question.site
    forecast, seeds = question.forecast(shape), question.line.evaluate.seeds
    return excess(question.line.plan, site.limits, forecast, band=site.plan.band, seeds=seeds)


@dataclass(frozen=True, kw_only=True, slots=True)
class EvaluatedShapes:
    """Every shape that was evaluated, in one of three places."""

    ranking: Ranking
    """Of those that fit."""
    missed: list[Shape]
    refused: dict[Shape, str]
    """With the reason."""
    num_left_out: int = 0
    """Shapes with more cuts that were not evaluated."""

    @property
    def ranked(self) -> Sequence[Shape]:
        return self.ranking.order

    @property
    def order(self) -> list[Shape]:
        return [*self.ranked, *self.missed]


def evaluate_shapes(question: PlanRequest) -> EvaluatedShapes:
    """Weigh what the line asks for; left to itself all that shares data, and all that cuts the model where forecasts
    can say what that is worth, or where sharing data fits in no way.

    Raises:
        ConfigError: The line asks for what the runtime or the inventory does not have, or nothing can have its options.
    """
    line, pool, profile = question.line, question.pool, question.profile
    require_options(line)
    if line.train.strategy != "auto":
        return _sort(question, [_asked_shape(line, pool, profile)])
    shapes = data_parallel_shapes(line, pool, profile)
    judged = _sort(question, shapes)
    if profile is not None and (
        _is_timed(question, judged) or not any(_fits_without_host(question, each) for each in judged.ranked)
    ):
        cut, num_left_out = cut_shapes(line, pool, profile)
        judged = replace(_sort(question, [*shapes, *cut]), num_left_out=num_left_out)
        judged.refused.update(unused_axes(line, pool, profile))
    return judged


def fitting_plan(question: PlanRequest) -> FittingPlan | None:
    """What would be chosen; None: nothing fits."""
    try:
        ranked = evaluate_shapes(question).ranked
    except ConfigError:
        return None
    if not ranked:
        return None
    pace = question.pace(ranked[0])
    return FittingPlan(ranked[0].name, None if pace is None else pace.most)


def _sort(question: PlanRequest, shapes: Sequence[Shape]) -> EvaluatedShapes:
    reasons = {shape: _refused(question, shape) for shape in shapes}
    runnable = [shape for shape in shapes if reasons[shape] is None]
    if not runnable:
        raise ConfigError(next(reason for reason in reasons.values() if reason))
    return EvaluatedShapes(
        ranking=rank(question, runnable),
        missed=[shape for shape in runnable if not question.fit(shape).holds],
        refused={shape: reason for shape, reason in reasons.items() if reason is not None},
    )


def _refused(question: PlanRequest, shape: Shape) -> str | None:
    return offload_obstacle(question.line, shape, question.pool.device) or refused(
        question.line, shape, question.profile
    )


def _is_timed(question: PlanRequest, judged: EvaluatedShapes) -> bool:
    """Forecasts say how long the first plan of the fixed order takes, and so what another one is worth."""
    first = judged.ranking.first
    return first is not None and question.formula(first).step_seconds is not None


def _fits_without_host(question: PlanRequest, shape: Shape) -> bool:
    """It fits without the host's memory."""
    return question.setting(shape).effort < OFFLOAD_EFFORT


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
