"""Every shape that a line may get, sorted: those that fit in order, those that miss, those that nothing can run."""

from collections.abc import Sequence
from dataclasses import dataclass

from gangline.errors import ConfigError
from gangline.planner.candidates import Shape, data_parallel_shapes, explicit_shape, shape_of
from gangline.planner.cuts import cut_shapes, refused, uncut
from gangline.planner.memory_options import OFFLOADED, moves_nothing
from gangline.planner.pool import Pool
from gangline.planner.question import Question
from gangline.planner.ranking import Ranking, rank
from gangline.planner.runnable import require_axes, require_options, require_runnable, require_task
from gangline.planner.smallest_change import Fitting
from gangline.planner.tensor import require_cuts, require_one_node
from gangline.planner.world import check_world, choose_world, num_nodes, ranks_per_node
from gangline.spec.line import Line
from gangline.spec.profile import ModelProfile


@dataclass(frozen=True, kw_only=True, slots=True)
class Judged:
    """Every shape that was considered, in one of three places."""

    ranking: Ranking
    """Of those that fit."""
    missed: list[Shape]
    refused: dict[Shape, str]
    """With the reason."""

    @property
    def ranked(self) -> Sequence[Shape]:
        return self.ranking.order

    @property
    def order(self) -> list[Shape]:
        return [*self.ranked, *self.missed]


def judge(question: Question) -> Judged:
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
        _is_timed(question, judged) or not any(_stays(question, each) for each in judged.ranked)
    ):
        judged = _sort(question, [*shapes, *cut_shapes(line, pool, profile)])
        judged.refused.update(uncut(line, pool, profile))
    return judged


def fitting(question: Question) -> Fitting | None:
    """What would be chosen; None: nothing fits."""
    try:
        ranked = judge(question).ranked
    except ConfigError:
        return None
    if not ranked:
        return None
    pace = question.pace(ranked[0])
    return Fitting(ranked[0].name, None if pace is None else pace.most)


def _sort(question: Question, shapes: Sequence[Shape]) -> Judged:
    reasons = {shape: _refused(question, shape) for shape in shapes}
    runnable = [shape for shape in shapes if reasons[shape] is None]
    if not runnable:
        raise ConfigError(next(reason for reason in reasons.values() if reason))
    return Judged(
        ranking=rank(question, runnable),
        missed=[shape for shape in runnable if not question.fit(shape).holds],
        refused={shape: reason for shape, reason in reasons.items() if reason is not None},
    )


def _refused(question: Question, shape: Shape) -> str | None:
    return moves_nothing(question.line, shape, question.pool.device) or refused(question.line, shape, question.profile)


def _is_timed(question: Question, judged: Judged) -> bool:
    """Forecasts say how long the first plan of the fixed order takes, and so what another one is worth."""
    first = judged.ranking.first
    return first is not None and question.formula(first).step_seconds is not None


def _stays(question: Question, shape: Shape) -> bool:
    """It fits without the host's memory."""
    return question.setting(shape).effort < OFFLOADED


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
    world = 1 if strategy == "none" else choose_world(line, pool)
    shape = shape_of(strategy, world, num_nodes(pool, world), profile)
    require_task(line, shape.mesh)
    require_axes(shape.mesh, profile)
    return shape
