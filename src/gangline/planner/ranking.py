"""Those that fit, best first: what the line wants least of, time or money, decides within its bounds.

Times are those of earlier runs and of forecasts; where the first plan of the fixed order has none, that order decides:
least given up for room, then least traffic. Nobody knows before a run how much communication hides behind computing: a
plan beats a simpler one where it does so by more than the band, with nothing hidden and with all of it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gangline.planner.budget import Excess, excess
from gangline.planner.candidates import Shape
from gangline.planner.memory_options import OFFLOADED
from gangline.planner.pace import Pace
from gangline.planner.question import Question


@dataclass(frozen=True, kw_only=True, slots=True)
class Ranking:
    """An order, and what it was made of."""

    order: Sequence[Shape] = ()
    """Best first."""
    first: Shape | None = None
    """Of the fixed order; None: nothing fits."""
    times: Mapping[Shape, Pace] = field(default_factory=dict)
    """Seconds of a step that can be compared with each other; empty: the fixed order decided."""
    costs: Mapping[Shape, Pace] = field(default_factory=dict)
    """What the line wants least of: seconds of a step, or seconds of GPUs; of those that competed."""
    over: Mapping[Shape, Excess] = field(default_factory=dict)
    """Beyond the bounds."""


def rank(question: Question, runnable: Sequence[Shape]) -> Ranking:
    """Of `runnable` those that fit."""
    fitting = [shape for shape in runnable if question.fit(shape).holds]
    fitting.sort(key=lambda shape: _fixed_order(question, shape))
    times = _comparable(question, fitting)
    if not fitting or fitting[0] not in times:
        return Ranking(order=fitting, first=fitting[0] if fitting else None)
    costs = {
        shape: pace.times(shape.mesh.world_size if question.counts_money else 1)
        for shape, pace in times.items()
        if shape == fitting[0] or not _leaves_idle(question, shape)
    }
    over = {shape: found for shape in costs if (found := _beyond(question, shape)) is not None}
    winner = _best(question, fitting, costs, over)
    others = sorted(
        (shape for shape in fitting if shape != winner),
        key=lambda shape: (shape not in costs, shape in over, costs[shape].most if shape in costs else 0.0),
    )
    return Ranking(order=[winner, *others], first=fitting[0], times=times, costs=costs, over=over)


def _best(
    question: Question, fitting: Sequence[Shape], costs: Mapping[Shape, Pace], over: Mapping[Shape, Excess]
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


def _comparable(question: Question, shapes: Sequence[Shape]) -> dict[Shape, Pace]:
    """Measured times, and forecasts of other shapes beside them: of what the fastest measured one was off by, these
    are off, too. Without a forecast of any measured one nothing stands beside what was measured."""
    measured = {shape: seconds for shape in shapes if (seconds := question.seconds(shape)) is not None}
    forecast = {shape: pace for shape in shapes if (pace := question.pace(shape)) is not None}
    known = {shape: Pace(seconds, seconds) for shape, seconds in measured.items()}
    both = [shape for shape in measured if shape in forecast]
    if measured and not both:
        return known
    if both:
        best = min(both, key=lambda shape: measured[shape])
        most, least = measured[best] / forecast[best].most, measured[best] / forecast[best].least
        forecast = {shape: Pace(pace.most * most, pace.least * least) for shape, pace in forecast.items()}
    return forecast | known


def _fixed_order(question: Question, shape: Shape) -> tuple[bool, bool, int, int]:
    """The host comes last, a rank alone before it, then whatever cuts the model; `sort` keeps what is equal."""
    effort = question.setting(shape).effort
    mesh = shape.mesh
    auto = question.line.train.strategy == "auto"
    cuts = (mesh.tp > 1) + (mesh.pp > 1) + (mesh.cp > 1) + (mesh.ep > 1) if auto else 0
    return effort >= OFFLOADED, shape.strategy == "none", cuts, effort


def _leaves_idle(question: Question, shape: Shape) -> bool:
    """A rank alone, where the line wants more, or where a gang of cores rehearses one of GPUs."""
    ranks = question.line.train.ranks
    least = ranks[0] if isinstance(ranks, tuple) else 1 if ranks == "auto" else ranks
    return shape.strategy == "none" and (least > 1 or question.pool.device == "cpu")


def _beyond(question: Question, shape: Shape) -> Excess | None:
    site = question.site
    forecast, seeds = question.forecast(shape), question.line.evaluate.seeds
    return excess(question.line.plan, site.limits, forecast, band=site.plan.band, seeds=seeds)
