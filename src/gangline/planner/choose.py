"""DDP or FSDP by what is there: one plan is chosen, and every other one gets the one reason why it lost.

The first planner knows the memory of the state by formula, and step times only where earlier runs of the project
measured them; what it does not know it says, and decides by the fixed order: least traffic among plans that fit.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from gangline.planner.candidates import Shape, data_parallel_shapes, explicit_shape, shape_of
from gangline.planner.micro_batch import choose_micro_batch
from gangline.planner.pool import Pool
from gangline.planner.question import Question
from gangline.planner.reasons import chosen_reason, loser_reason, no_fit_reason, refuse_all
from gangline.planner.runnable import RUNNABLE, require_options, require_runnable
from gangline.planner.world import check_world, choose_world, num_nodes
from gangline.spec.inventory import Inventory
from gangline.spec.line import Line
from gangline.spec.mesh import Mesh
from gangline.spec.plan import Candidate, Device, Forecast, Precision, Strategy
from gangline.spec.profile import Measured, ModelProfile
from gangline.spec.site import Site


@dataclass(frozen=True, kw_only=True, slots=True)
class Choice:
    """The winner, how it runs, and why; `candidates` has it first, then the runner-up, then the losers."""

    name: str
    strategy: Strategy
    mesh: Mesh
    micro_batch: int
    precision: Precision
    device: Device
    num_nodes: int
    reason: str
    candidates: tuple[Candidate, ...]
    forecast: Forecast

    @property
    def procs_per_node(self) -> int:
        return self.mesh.world_size // self.num_nodes


def choose(
    line: Line,
    site: Site,
    inventory: Inventory,
    profile: ModelProfile | None = None,
    history: Sequence[Measured] = (),
    *,
    supported: frozenset[str] = RUNNABLE,
) -> Choice:
    """The plan of `line` on what is there.

    Args:
        line: What is asked.
        site: Prices, reserves and margins.
        inventory: What is there.
        profile: None where the size of the model is not known, as for a command.
        history: Measured steps of earlier runs; those of another model are left out.
        supported: Strategies that the runtime executes.

    Raises:
        ConfigError: Nothing fits (with the two nearest misses), the line asks for what the runtime or the inventory
            does not have, or its batch cannot be shared evenly.
    """
    require_options(line, supported)
    question = Question.about(line, site, inventory, profile, history)
    pool = question.pool
    if line.train.strategy == "auto":
        shapes = data_parallel_shapes(choose_world(line, pool), pool)
    else:
        shapes = [_asked_shape(line, pool, supported)]
    ranked = _rank(question, [shape for shape in shapes if shape.strategy in supported])
    judged = [*ranked, *(shape for shape in shapes if shape not in ranked)]
    candidates = tuple(_candidate(question, shape, ranked, judged) for shape in judged)
    return _choice(question, ranked[0], candidates)


def _asked_shape(line: Line, pool: Pool, supported: frozenset[str]) -> Shape:
    strategy = line.train.strategy
    if strategy == "explicit":
        shape = explicit_shape(line)
        require_runnable(shape.strategy, supported, key="train.mesh")
        check_world(line, pool, shape.mesh.world_size, shares=shape.mesh.data_parallel, key="train.mesh")
        return shape
    require_runnable(strategy, supported)
    world = 1 if strategy == "none" else choose_world(line, pool)
    return shape_of(strategy, world, num_nodes(pool, world))


def _rank(question: Question, runnable: list[Shape]) -> list[Shape]:
    """Those that fit, best first: as they came, unless measurements of the first and another say otherwise."""
    fitting = [shape for shape in runnable if question.fit(shape).holds]
    if not fitting:
        raise refuse_all(question.pool, question.profile, [(shape, question.fit(shape)) for shape in runnable])
    if question.seconds(fitting[0]) is None:
        return fitting
    times = {shape: seconds for shape in fitting if (seconds := question.seconds(shape)) is not None}
    bound = min(times.values()) * (1 + question.band)
    tied = [shape for shape, seconds in times.items() if seconds <= bound]
    winner = min(tied, key=lambda shape: (shape.num_axes, fitting.index(shape)))
    return [winner, *(shape for shape in fitting if shape != winner)]


def _candidate(question: Question, shape: Shape, ranked: list[Shape], judged: list[Shape]) -> Candidate:
    fit = question.fit(shape)
    candidate = Candidate(
        name=shape.name,
        strategy=shape.strategy,
        mesh=shape.mesh,
        verdict="unsupported",
        reason="the runtime does not run it yet",
        forecast=question.forecast(shape),
    )
    if shape == ranked[0]:
        asked = question.line.train.strategy != "auto"
        reason = chosen_reason(shape, fit, question.profile, asked=asked, alone=len(judged) == 1)
        return replace(candidate, verdict="chosen", reason=reason)
    if shape in ranked:
        reason = loser_reason(shape, ranked[0], question.seconds(shape), question.seconds(ranked[0]))
        return replace(candidate, verdict="runner_up" if shape == ranked[1] else "lost", reason=reason)
    return candidate if fit.holds else replace(candidate, verdict="no_fit", reason=no_fit_reason(fit))


def _choice(question: Question, winner: Shape, candidates: tuple[Candidate, ...]) -> Choice:
    micro_batch = choose_micro_batch(question.line, winner.mesh, lambda size: question.fit(winner, size).holds)
    return Choice(
        name=winner.name,
        strategy=winner.strategy,
        mesh=winner.mesh,
        micro_batch=micro_batch,
        precision=question.precision,
        device=question.pool.device,
        num_nodes=num_nodes(question.pool, winner.mesh.world_size),
        reason=candidates[0].reason,
        candidates=candidates,
        forecast=question.forecast(winner, micro_batch),
    )
