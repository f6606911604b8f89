"""One plan is chosen by what is there, and every other one gets the one reason why it lost.

Memory is known by formula, step times only where earlier runs of the project measured them. What is not known is said,
and the fixed order decides: least given up for room, then least traffic, among plans that fit. Left to itself it shares
data alone; where that does not fit a model is cut into pieces, and where that does not either, shards wait on the host.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from gangline.errors import ConfigError
from gangline.planner.candidates import Shape, data_parallel_shapes, explicit_shape, shape_of
from gangline.planner.cuts import cut_shapes, refused, uncut
from gangline.planner.memory_options import OFFLOADED, Setting, moves_nothing
from gangline.planner.pipeline import choose_schedule, idle_share, require_stages
from gangline.planner.pool import Pool
from gangline.planner.question import Question
from gangline.planner.reasons import chosen_reason, loser_reason, no_fit_reason, refuse_all
from gangline.planner.runnable import require_axes, require_options, require_runnable, require_task
from gangline.planner.save_interval import SaveCosts, costs_of
from gangline.planner.sizes import other_sizes
from gangline.planner.smallest_change import smallest_change
from gangline.planner.tensor import require_cuts, require_one_node
from gangline.planner.world import check_world, choose_world, num_nodes, ranks_per_node
from gangline.spec.inventory import Inventory
from gangline.spec.line import Line
from gangline.spec.mesh import Mesh
from gangline.spec.plan import Candidate, Device, Forecast, Memory, PipelineSchedule, Precision, Size, Strategy
from gangline.spec.profile import Measured, ModelProfile
from gangline.spec.rates import Rates
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
    memory: Memory = Memory()
    pp_schedule: PipelineSchedule = "1f1b"
    sizes: tuple[Size, ...] = ()
    """Other numbers of ranks that an elastic gang may go on with; each holds the model."""

    finalists: tuple[tuple[Shape, Setting], ...] = ()
    """The best two, and how each would be run."""
    save_costs: SaveCosts | None = None
    """As earlier runs of this shape had them; None: not known."""

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
    rates: Rates | None = None,
) -> Choice:
    """The plan of `line` on what is there.

    Args:
        line: What is asked.
        site: Prices, reserves and margins.
        inventory: What is there.
        profile: None where the size of the model is not known, as for a command.
        history: Measured steps of earlier runs, newest first; those of another model are left out.
        rates: Of the devices in `inventory`; None: nobody measured them.

    Raises:
        ConfigError: Nothing fits (with the two nearest misses, and the smallest change that would), the line asks for
            what the runtime or the inventory does not have, or its batch cannot be shared evenly.
    """
    question = Question.about(line, site, inventory, profile, history, rates=rates)
    judged = judge(question)
    if not judged.ranked:
        change = smallest_change(line, site, inventory, profile, fits=_fits)
        misses = [(shape, question.fit(shape)) for shape in judged.missed]
        raise refuse_all(question.pool, profile, misses, change)
    candidates = tuple(_candidate(question, shape, judged) for shape in judged.order)
    cut = tuple(
        Candidate(name=each.name, strategy=each.strategy, mesh=each.mesh, verdict="unsupported", reason=reason)
        for each, reason in judged.refused.items()
    )
    return _choice(question, judged.ranked, (*candidates, *cut))


@dataclass(frozen=True, kw_only=True, slots=True)
class Judged:
    """Every shape that was considered, in one of three places."""

    ranked: list[Shape]
    """Those that fit, best first."""
    missed: list[Shape]
    refused: dict[Shape, str]
    """With the reason."""

    @property
    def order(self) -> list[Shape]:
        return [*self.ranked, *self.missed]


def judge(question: Question) -> Judged:
    """Weigh what the line asks for; left to itself all that shares data, and where none of it fits all that cuts.

    Raises:
        ConfigError: The line asks for what the runtime or the inventory does not have, or nothing can have its options.
    """
    line, pool, profile = question.line, question.pool, question.profile
    require_options(line)
    auto = line.train.strategy == "auto"
    shapes = data_parallel_shapes(choose_world(line, pool), pool) if auto else [_asked_shape(line, pool, profile)]
    judged = _sort(question, shapes)
    if auto and profile is not None and not any(_stays(question, shape) for shape in judged.ranked):
        judged = _sort(question, [*shapes, *cut_shapes(line, pool, profile)])
        judged.refused.update(uncut(line, pool, profile))
    return judged


def _sort(question: Question, shapes: Sequence[Shape]) -> Judged:
    reasons = {shape: _refused(question, shape) for shape in shapes}
    runnable = [shape for shape in shapes if reasons[shape] is None]
    if not runnable:
        raise ConfigError(next(reason for reason in reasons.values() if reason))
    return Judged(
        ranked=_rank(question, runnable),
        missed=[shape for shape in runnable if not question.fit(shape).holds],
        refused={shape: reason for shape, reason in reasons.items() if reason is not None},
    )


def _refused(question: Question, shape: Shape) -> str | None:
    return moves_nothing(question.line, shape, question.pool.device) or refused(question.line, shape, question.profile)


def _stays(question: Question, shape: Shape) -> bool:
    """It fits without the host's memory."""
    return question.setting(shape).effort < OFFLOADED


def _fits(line: Line, site: Site, inventory: Inventory, profile: ModelProfile | None) -> str:
    """Name of what would be chosen; empty: nothing fits."""
    try:
        ranked = judge(Question.about(line, site, inventory, profile, ())).ranked
    except ConfigError:
        return ""
    return ranked[0].name if ranked else ""


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


def _rank(question: Question, runnable: list[Shape]) -> list[Shape]:
    """Those that fit, best first: least given up for room, then as they came, unless measurements of the first and
    another say otherwise."""
    fitting = [shape for shape in runnable if question.fit(shape).holds]
    fitting.sort(key=lambda shape: _order(question, shape))
    if not fitting or question.seconds(fitting[0]) is None:
        return fitting
    times = {shape: seconds for shape in fitting if (seconds := question.seconds(shape)) is not None}
    bound = min(times.values()) * (1 + question.band)
    tied = [shape for shape, seconds in times.items() if seconds <= bound]
    winner = min(tied, key=lambda shape: (shape.num_axes, fitting.index(shape)))
    return [winner, *(shape for shape in fitting if shape != winner)]


def _order(question: Question, shape: Shape) -> tuple[bool, bool, int, int]:
    """The host comes last, a rank alone before it, then whatever cuts the model."""
    effort = question.setting(shape).effort
    mesh = shape.mesh
    cuts = (mesh.tp > 1) + (mesh.pp > 1) if question.line.train.strategy == "auto" else 0
    return effort >= OFFLOADED, shape.strategy == "none", cuts, effort


def _candidate(question: Question, shape: Shape, judged: Judged) -> Candidate:
    setting, ranked = question.setting(shape), judged.ranked
    candidate = Candidate(
        name=shape.name,
        strategy=shape.strategy,
        mesh=shape.mesh,
        verdict="no_fit",
        reason=no_fit_reason(setting.fit),
        forecast=question.forecast(shape),
    )
    if shape == ranked[0]:
        asked = question.line.train.strategy != "auto"
        alone = len(judged.order) + len(judged.refused) == 1
        given = _given(question.line)
        reason = chosen_reason(shape, setting, question.profile, asked=asked, alone=alone, given=given)
        return replace(candidate, verdict="chosen", reason=reason)
    if shape in ranked:
        settings = setting, question.setting(ranked[0])
        reason = loser_reason(shape, ranked[0], settings, (question.seconds(shape), question.seconds(ranked[0])))
        return replace(candidate, verdict="runner_up" if shape == ranked[1] else "lost", reason=reason)
    return candidate


def _given(line: Line) -> Memory:
    """What the line itself asks for."""
    table = line.train.memory
    return Memory(
        activation_checkpointing="none" if table.activation_checkpointing == "auto" else table.activation_checkpointing,
        loss_chunks=1 if table.loss_chunks == "auto" else table.loss_chunks,
        offload="none" if table.offload == "auto" else table.offload,
    )


def _choice(question: Question, ranked: Sequence[Shape], candidates: tuple[Candidate, ...]) -> Choice:
    winner = ranked[0]
    setting, line = question.setting(winner), question.line
    require_stages(line, winner.mesh, setting.micro_batch, question.profile)
    schedule = choose_schedule(line, winner.mesh, setting.micro_batch, question.profile)
    idle = idle_share(line, winner.mesh, setting.micro_batch, schedule)
    sizes, too_few = other_sizes(
        line, strategy=winner.strategy, mesh=winner.mesh, micro_batch=setting.micro_batch,
        holds=lambda shape, micro_batch: question.weigh(shape, micro_batch, setting.memory).holds,
    )  # fmt: skip
    missing = f"; never on {', '.join(map(str, too_few))} ranks, which cannot hold it" if too_few else ""
    return Choice(
        name=winner.name,
        strategy=winner.strategy,
        mesh=winner.mesh,
        micro_batch=setting.micro_batch,
        precision=question.precision,
        device=question.pool.device,
        num_nodes=num_nodes(question.pool, winner.mesh.world_size),
        reason=candidates[0].reason + missing,
        candidates=candidates,
        forecast=replace(question.forecast(winner), bubble=idle),
        memory=setting.memory,
        pp_schedule=schedule,
        sizes=sizes,
        finalists=tuple((shape, question.setting(shape)) for shape in ranked[:2]),
        save_costs=costs_of([each for each in question.history if each.mesh == winner.mesh]),
    )
