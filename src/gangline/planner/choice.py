"""Choice of one plan for the available devices, with one reason for every other candidate.

Memory is computed by formula; step times come from earlier runs and forecasts, as far as device rates are known.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches

from gangline.errors import UsageError
from gangline.fabric.inventory import Fabric
from gangline.planner.candidates import EvaluatedLayouts, evaluate_layouts, fitting_plan
from gangline.planner.cost.interruptions import save_costs_of
from gangline.planner.gpu_pair import Ask
from gangline.planner.layouts.layout import Layout, display_name, elastic_sizes, program_decides
from gangline.planner.layouts.pipeline import choose_schedule, idle_share, require_stages
from gangline.planner.pool import num_nodes
from gangline.planner.reasons import (
    PROGRAM_DECIDES_REASON,
    chosen_reason,
    no_fit_reason,
    refuse_all,
    runner_up,
    why_lost,
    winner_reason,
)
from gangline.planner.request import PlanRequest
from gangline.planner.settings import FittedSetting
from gangline.planner.suggestion import FittingPlan, suggest_change
from gangline.spec.config.line import Line
from gangline.spec.config.site import Site
from gangline.spec.devices import Inventory, Rates
from gangline.spec.federated import FederationPlan
from gangline.spec.forecast import Forecast
from gangline.spec.mesh import Mesh
from gangline.spec.plan import Candidate, Device, Memory, PipelineSchedule, Precision, SaveCosts, Size
from gangline.spec.profile import MeasuredRun, ModelProfile
from gangline.spec.strategies import Strategy
from gangline.spec.transformer import Transformer


@dataclass(frozen=True, kw_only=True, slots=True)
class SearchSummary:
    """What a choice was made from."""

    num_candidates: int
    """Each a layout with one way to run it."""
    num_weighed: int
    """Those that were weighed; the others lose by their bounds."""
    num_fit: int
    """Those of them that fit."""
    bound_seconds: float | None
    """No step on so many GPUs takes less; None: no rates are known."""
    settings: dict[str, str] = field(default_factory=dict)
    """How each layout would be run: `fsdp-16 b4s`."""
    struck: dict[str, int] = field(default_factory=dict)
    """Products of degrees that a rule left out, by the rule."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanChoice:
    """The winner, how it runs, and why; `candidates` has it first, then the losers, the nearest first."""

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
    shares: tuple[int, ...] = ()
    """Samples of a step by replica, of a gang of two kinds of GPU; empty: equal ones."""
    sizes: tuple[Size, ...] = ()
    """Other numbers of ranks that an elastic gang may go on with; each holds the model."""

    finalists: tuple[tuple[Layout, FittedSetting], ...] = ()
    """The best and the runner-up, and how each would be run."""
    save_costs: SaveCosts | None = None
    """Costs that earlier runs of this layout had; None: not known."""
    federation: FederationPlan | None = None
    """Members that train; None: the ranks do."""
    search: SearchSummary | None = None
    """Plans that were weighed of a model known by its shape; None: only the candidates above were."""

    def candidate(self, name: str) -> Candidate:
        """Candidate of this name, or of a row as the table prints it (`fsdp-16 b4s`).

        Raises:
            UsageError: There is none.
        """
        settings = self.search.settings if self.search else {}
        wanted = " ".join(name.strip("*\"' ").split())
        rows = {settings.get(each.name, each.name): each for each in self.candidates}
        found = {each.name: each for each in self.candidates} | rows
        if wanted not in found:
            names = get_close_matches(wanted, list(rows), n=3, cutoff=0.3)
            raise UsageError(f"wanted a plan of the table, found {name!r}; near it: {', '.join(names) or self.name}")
        return found[wanted]

    @property
    def procs_per_node(self) -> int:
        """Ranks of each node."""
        return self.mesh.world_size // self.num_nodes


def choose_plan(
    line: Line,
    site: Site,
    inventory: Inventory,
    profile: ModelProfile | None = None,
    history: Sequence[MeasuredRun] = (),
    *,
    rates: Rates | None = None,
    fabric: Fabric | None = None,
) -> PlanChoice:
    """The plan of `line` on what is there.

    Args:
        line: What is asked.
        site: Prices, reserves and margins.
        inventory: What is there.
        profile: None where the size of the model is not known, as for a command.
        history: Measured steps of earlier runs, newest first; those of another model are left out.
        rates: Of the devices in `inventory`; None: they were not measured.
        fabric: That joins its nodes; None: messages between them share no link.

    Raises:
        ConfigError: Nothing fits (with the two nearest misses, and the smallest change that would), the line asks for
            what the runtime or the inventory does not have, or its batch cannot be shared evenly.
    """

    def ask(line: Line, inventory: Inventory) -> PlanRequest:
        return PlanRequest.about(line, site, inventory, profile, history, rates=rates, fabric=fabric)

    if line.federated is not None:
        from gangline.planner.federated import choose_federated  # few lines have members

        def choose(line: Line, inventory: Inventory) -> PlanChoice:
            return choose_plan(line, site, inventory, profile, history, rates=rates, fabric=fabric)

        return choose_federated(line, site, inventory, choose=choose)
    request = ask(line, inventory)
    if profile is not None and profile.transformer is not None and not profile.traces and not program_decides(line):
        return choose_by_formula(request, profile.transformer, ask=ask, inventory=inventory)
    evaluated = evaluate_layouts(request)
    if not evaluated.ranked:
        change = suggest_change(line, inventory, lambda *changed: fitting_plan(ask(*changed)))
        misses = [(layout, request.fit(layout)) for layout in evaluated.too_large]
        raise refuse_all(request.pool, profile, request.optimizer.moment_bytes, misses, change)
    candidates = tuple(_candidate(request, layout, evaluated) for layout in evaluated.order)
    cut = tuple(
        Candidate(name=each.name, strategy=each.strategy, mesh=each.mesh, verdict="unsupported", reason=reason)
        for each, reason in evaluated.unsupported.items()
    )
    return _choice(request, evaluated, (*candidates, *cut))


def choose_by_formula(request: PlanRequest, model: Transformer, *, ask: Ask, inventory: Inventory) -> PlanChoice:
    """The plan of a model that is known by its shape alone.

    Raises:
        ConfigError: Nothing fits that ranks here run.
    """
    from gangline.planner.formula import choice as by_formula  # a model that was traced needs none of it

    ranking = by_formula.rank_layouts(request, model)
    chosen = ranking.chosen
    if chosen is None:

        def fitting(line: Line, inventory: Inventory) -> FittingPlan | None:
            return by_formula.fitting_layout(ask(line, inventory), model)

        raise by_formula.refuse_layouts(request, ranking, model, suggest_change(request.line, inventory, fitting))
    evaluation, setting = ranking.evaluation, chosen.setting
    candidates = by_formula.candidates_of(request, ranking)
    mesh, strategy = chosen.layout.mesh, chosen.layout.strategy
    sizes, too_few = elastic_sizes(
        request.line, strategy=strategy, mesh=mesh, micro_batch=setting.micro_batch,
        holds=lambda layout, micro_batch: by_formula.layout_holds(request, model, chosen, layout.mesh, micro_batch),
    )  # fmt: skip
    missing = f"; never on {', '.join(map(str, too_few))} ranks, which cannot hold it" if too_few else ""
    return PlanChoice(
        name=chosen.layout.name,
        strategy=strategy,
        mesh=mesh,
        micro_batch=setting.micro_batch,
        precision=request.precision,
        device=request.pool.device,
        num_nodes=num_nodes(request.pool, mesh.world_size),
        reason=candidates[0].reason + missing,
        candidates=candidates,
        forecast=candidates[0].forecast,
        memory=setting.memory,
        pp_schedule=setting.schedule or "1f1b",
        sizes=sizes,
        search=SearchSummary(
            num_candidates=evaluation.num_candidates,
            num_weighed=evaluation.num_weighed,
            num_fit=evaluation.num_fit,
            bound_seconds=None if ranking.missing else evaluation.bound_seconds,
            settings={each.layout.name: each.name for each in ranking.order},
            struck=dict(evaluation.ruled_out),
        ),
    )


def _candidate(request: PlanRequest, layout: Layout, evaluated: EvaluatedLayouts) -> Candidate:
    setting, ranked = request.setting(layout), evaluated.ranked
    candidate = Candidate(
        name=display_name(request.line, layout),
        strategy=layout.strategy,
        mesh=layout.mesh,
        verdict="no_fit",
        reason=no_fit_reason(setting.fit),
        forecast=request.forecast(layout),
    )
    if layout == ranked[0] and program_decides(request.line):
        return replace(candidate, verdict="chosen", reason=PROGRAM_DECIDES_REASON)
    if layout == ranked[0]:
        is_requested = request.line.train.strategy != "auto"
        is_only = len(evaluated.order) + len(evaluated.unsupported) == 1
        line_memory, win_reason = _line_memory(request.line), winner_reason(request, evaluated.ranking)
        reason = chosen_reason(
            layout, setting, request.profile, moment_bytes=request.optimizer.moment_bytes,
            is_requested=is_requested, is_only=is_only, line_memory=line_memory, win_reason=win_reason,
        )  # fmt: skip
        return replace(candidate, verdict="chosen", reason=reason)
    if layout in ranked:
        lost = why_lost(request, evaluated.ranking, layout)
        is_second = lost.verdict in ("lost", "more_axes") and layout == runner_up(request, evaluated.ranking)
        return replace(candidate, verdict="runner_up" if is_second else lost.verdict, reason=lost.words)
    return candidate


def _line_memory(line: Line) -> Memory:
    """What the line itself asks for."""
    table = line.train.memory
    return Memory(
        activation_checkpointing="none" if table.activation_checkpointing == "auto" else table.activation_checkpointing,
        loss_chunks=1 if table.loss_chunks == "auto" else table.loss_chunks,
        offload="none" if table.offload == "auto" else table.offload,
        gradient_sync="last" if table.gradient_sync == "auto" else table.gradient_sync,
    )


def _choice(request: PlanRequest, evaluated: EvaluatedLayouts, candidates: tuple[Candidate, ...]) -> PlanChoice:
    winner, second = evaluated.ranked[0], runner_up(request, evaluated.ranking)
    setting, line = request.setting(winner), request.line
    require_stages(line, winner.mesh, setting.micro_batch, request.profile)
    schedule = choose_schedule(line, winner.mesh, setting.micro_batch, request.profile)
    trace = request.profile.trace(request.precision) if request.profile else None
    idle = idle_share(line, winner.mesh, setting.micro_batch, schedule, trace)
    sizes, too_few = elastic_sizes(
        line, strategy=winner.strategy, mesh=winner.mesh, micro_batch=setting.micro_batch,
        holds=lambda layout, micro_batch: request.fit_of(layout, micro_batch, setting.memory).holds,
    )  # fmt: skip
    missing = f"; never on {', '.join(map(str, too_few))} ranks, which cannot hold it" if too_few else ""
    return PlanChoice(
        name=display_name(line, winner),
        strategy=winner.strategy,
        mesh=winner.mesh,
        micro_batch=setting.micro_batch,
        precision=request.precision,
        device=request.pool.device,
        num_nodes=num_nodes(request.pool, winner.mesh.world_size),
        reason=candidates[0].reason + missing,
        candidates=candidates,
        forecast=replace(request.forecast(winner), bubble=idle),
        memory=setting.memory,
        pp_schedule=schedule,
        sizes=sizes,
        finalists=tuple((layout, request.setting(layout)) for layout in (winner, second) if layout),
        save_costs=save_costs_of([each for each in request.history if each.mesh == winner.mesh]),
    )
