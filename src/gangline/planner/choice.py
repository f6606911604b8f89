"""Choice of one plan for the available devices, with one reason for every other candidate.

Memory is computed by formula; step times come from earlier runs and forecasts, as far as device rates are known.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any

from gangline.errors import UsageError
from gangline.fabric.topology.inventory import Fabric
from gangline.planner.budget import PlanReason
from gangline.planner.candidates import Ranking, evaluate_layouts, fitting_plan
from gangline.planner.contest import SearchSummary
from gangline.planner.cost.interruptions import save_costs_of
from gangline.planner.layouts.layout import Layout, display_name, elastic_sizes, program_decides
from gangline.planner.layouts.pipeline import choose_schedule, idle_share, require_stages
from gangline.planner.pool import num_nodes
from gangline.planner.problem import PlanProblem
from gangline.planner.reasons import candidate_of, chosen_reason, no_fit_reason, refuse_all, runner_up, why_lost
from gangline.planner.request import Ask, PlanRequest
from gangline.planner.settings import FittedSetting
from gangline.planner.suggestion import suggest_change
from gangline.spec.config.line import Line
from gangline.spec.config.site import Site
from gangline.spec.devices import Inventory, Rates
from gangline.spec.federated import FederationPlan
from gangline.spec.forecast import Forecast
from gangline.spec.mesh import Mesh
from gangline.spec.plan import Candidate, Device, Memory, PipelineSchedule, Precision, SaveCosts, Size
from gangline.spec.profile import MeasuredRun, ModelProfile
from gangline.spec.strategies import Strategy


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

    def rows(self) -> list[tuple[str, Candidate]]:
        """Candidates by names that tell them apart: with the way that each is run, else with degrees where two share
        a name."""
        settings, count = (
            self.search.settings if self.search else {},
            Counter(candidate.name for candidate in self.candidates),
        )
        return [
            (
                f"{candidate.name} {candidate.mesh.cuts}"
                if count[candidate.name] > 1
                else settings.get(candidate.name, candidate.name),
                candidate,
            )
            for candidate in self.candidates
        ]

    def candidate(self, name: str) -> Candidate:
        """Candidate of this name, or of a row as the table prints it (`fsdp-16 b4s`).

        Raises:
            UsageError: There is none.
        """
        wanted = " ".join(name.strip("*\"' ").split())
        rows = dict(self.rows())
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

        return choose_federated(
            line, site, inventory,
            choose=lambda one, kind: choose_plan(one, site, kind, profile, history, rates=rates, fabric=fabric),
        )  # fmt: skip
    request = ask(line, inventory)
    if request.is_by_formula and not program_decides(line):
        return choose_by_formula(request, ask=ask, inventory=inventory)
    ranking = evaluate_layouts(request)
    if not ranking.order:
        change = suggest_change(line, inventory, lambda *changed: fitting_plan(ask(*changed)))
        raise refuse_all(request, ranking, change)
    return _choice(request, ranking)


def choose_by_formula(request: PlanRequest, *, ask: Ask, inventory: Inventory) -> PlanChoice:
    """The plan of a model that is known by its shape alone.

    Raises:
        ConfigError: Nothing fits that ranks here run.
    """
    from gangline.planner.formula import choice as by_formula  # a model that was traced needs none of it

    ranking = by_formula.rank_layouts(request)
    chosen = ranking.chosen
    if chosen is None:
        change = suggest_change(request.line, inventory, lambda *changed: by_formula.fitting_layout(ask(*changed)))
        raise by_formula.refuse_layouts(request, ranking, change)
    setting = chosen.setting
    candidates = by_formula.candidates_of(request, ranking)
    return plan_choice(
        request, candidates, micro_batch=setting.micro_batch, memory=setting.memory, forecast=candidates[0].forecast,
        pp_schedule=setting.schedule or "1f1b",
        holds=lambda layout, micro_batch: by_formula.layout_holds(request, chosen, layout.mesh, micro_batch),
        search=replace(ranking.evaluation.search, settings={plan.layout.name: plan.name for plan in ranking.order}),
    )  # fmt: skip


def plan_choice(
    request: PlanProblem, candidates: tuple[Candidate, ...], *, micro_batch: int, memory: Memory, forecast: Forecast,
    holds: Callable[[Layout, int], bool], **more: Any,
) -> PlanChoice:  # fmt: skip
    """The first of `candidates` as the choice, with the sizes that an elastic gang may go on with.

    `holds` says whether a rank of another size holds passes of so many samples; `more` are fields of `PlanChoice` that
    only one kind of choice has.
    """
    chosen = candidates[0]
    sizes, too_few = elastic_sizes(
        request.line, strategy=chosen.strategy, mesh=chosen.mesh, micro_batch=micro_batch, holds=holds
    )
    missing = f"; never on {', '.join(map(str, too_few))} ranks, which cannot hold it" if too_few else ""
    return PlanChoice(
        name=chosen.name, strategy=chosen.strategy, mesh=chosen.mesh, micro_batch=micro_batch, memory=memory,
        precision=request.precision, device=request.pool.device,
        num_nodes=num_nodes(request.pool, chosen.mesh.world_size), reason=chosen.reason + missing,
        candidates=candidates, forecast=forecast, sizes=sizes, **more,
    )  # fmt: skip


def _candidate(request: PlanRequest, ranking: Ranking, layout: Layout, second: Layout | None) -> Candidate:
    if layout == ranking.order[0]:
        reason = PlanReason("chosen", chosen_reason(request, ranking))
    elif layout in ranking.order:
        reason = why_lost(request, ranking, layout)
        if layout == second and reason.verdict in ("lost", "more_axes"):
            reason = replace(reason, verdict="runner_up")
    else:
        reason = PlanReason("no_fit", no_fit_reason(request.fit(layout)))
    return replace(candidate_of(layout, reason, request.forecast(layout)), name=display_name(request.line, layout))


def _choice(request: PlanRequest, ranking: Ranking) -> PlanChoice:
    """The best of a ranking with a candidate for every layout."""
    winner, second = ranking.order[0], runner_up(request, ranking)
    candidates = [_candidate(request, ranking, layout, second) for layout in ranking.runnable]
    cut = (
        candidate_of(layout, PlanReason("unsupported", words), Forecast())
        for layout, words in ranking.unsupported.items()
    )
    setting, line, mesh = request.setting(winner), request.line, winner.mesh
    require_stages(line, mesh, setting.micro_batch, request.profile)
    schedule = choose_schedule(line, mesh, setting.micro_batch, request.profile)
    trace = request.profile.trace(request.precision) if request.profile else None
    idle = idle_share(line, mesh, setting.micro_batch, schedule, trace)
    return plan_choice(
        request, (*candidates, *cut), micro_batch=setting.micro_batch, memory=setting.memory, pp_schedule=schedule,
        forecast=replace(request.forecast(winner), bubble=idle),
        holds=lambda layout, micro_batch: request.fit_of(layout, micro_batch, setting.memory).holds,
        finalists=tuple((layout, request.setting(layout)) for layout in (winner, second) if layout),
        save_costs=save_costs_of([run for run in request.history if run.mesh == mesh]),
    )  # fmt: skip
