"""Choice of a plan for a transformer known by its shape: every candidate weighed, one reason for each layout."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from gangline.errors import ConfigError
from gangline.planner.budget import PlanReason
from gangline.planner.contest import Contender, TimeBounds, winner
from gangline.planner.cost.averaging import by_latency, exposed_buckets
from gangline.planner.cost.calibration import kind_of
from gangline.planner.cost.exchange import link_rates
from gangline.planner.cost.traffic import edge_bytes
from gangline.planner.forecast import money_of
from gangline.planner.formula.evaluate import Evaluation, LayoutPlan, evaluate, layout_memory, only_plan
from gangline.planner.formula.inputs import formula_question, may_offload, world_of
from gangline.planner.formula.memory import memory_bound_bytes
from gangline.planner.formula.step_time import PART_WORDS, formula_rings
from gangline.planner.layouts.layout import WrappedLayout
from gangline.planner.problem import PlanProblem
from gangline.planner.reasons import candidate_of, more_axes
from gangline.planner.settings import BACKWARD, GRADIENT_BYTES, bucket_bytes, step_load
from gangline.planner.suggestion import FittingPlan
from gangline.spec.forecast import Forecast, GradientBuckets, Term
from gangline.spec.mesh import Mesh
from gangline.spec.plan import Candidate
from gangline.units import format_bytes, format_step

TERMS = {
    "compute": ("compute", "tensor", "experts"), "communication": ("exchange", "stages", "context", "host"),
    "bubble": ("bubble",), "optimizer": ("optimizer",),
}  # fmt: skip
"""Words of `spec.forecast.PARTS`, and the parts of a step by formula that a run books under each."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FormulaRanking:
    """All layouts of one question, the chosen one first."""

    evaluation: Evaluation
    order: tuple[LayoutPlan, ...]
    forecasts: Mapping[str, Forecast]
    """Forecast of each layout, by its name."""
    costs: Mapping[str, float]
    """What the line wants least of, of those that fit and that ranks here run."""
    over: Mapping[str, PlanReason]
    """Layouts beyond the bounds of the line."""
    missing: str = ""
    """Why there are no times; empty: there are."""

    @property
    def chosen(self) -> LayoutPlan | None:
        """None: nothing fits that ranks here run."""
        first = self.order[0] if self.order else None
        return first if first is not None and first.layout.name in self.costs else None


def rank_layouts(problem: PlanProblem) -> FormulaRanking:
    """Weigh every candidate on the ranks that the line asks for, else on all that are there.

    Of the plans within the bounds that are within the band of the fastest (or cheapest), the one with the fewest axes,
    then the least time (or money), then the name. A pipeline that is chosen is weighed again on the order of servers
    that its stages get.
    """
    world, on_host = world_of(problem), problem.line.train.memory.offload == "cpu"
    question = formula_question(problem, world, on_host=on_host)
    evaluation = evaluate(question, band=problem.band)
    if may_offload(problem) and not any(_runs(plan) for plan in evaluation.plans):
        with_host = evaluate(formula_question(problem, world, on_host=True), band=problem.band)
        evaluation = with_host if any(_runs(plan) for plan in with_host.plans) else evaluation
    while True:
        ranking = _ranked(problem, evaluation, question.missing)
        chosen = ranking.chosen
        if chosen is None:
            return ranking
        laid_out = _in_planned_order(problem, chosen)
        if laid_out.parts == chosen.parts:
            return ranking
        others = (plan for plan in evaluation.plans if plan is not chosen)
        evaluation = replace(evaluation, plans=tuple(sorted((laid_out, *others), key=lambda plan: plan.order)))


def _in_planned_order(problem: PlanProblem, plan: LayoutPlan) -> LayoutPlan:
    """`plan` with its times on the order of servers that a placer gives its stages, as its certificate has it.

    As it is without stages, a fabric, or rates.
    """
    layout, pool, line, profile = plan.layout, problem.pool, problem.line, problem.profile
    mesh = layout.mesh
    if mesh.pp == 1 or pool.fabric is None or profile is None:
        return plan
    question = formula_question(problem, mesh.world_size, on_host=plan.on_host)
    if question.missing:
        return plan
    load = step_load(line, layout, plan.setting)
    rings = formula_rings(profile, layout, load)
    edges = edge_bytes(rings, profile, mesh, load, ranks_per_server=question.space.ranks_per_node)
    links = link_rates(pool, mesh.world_size, stages=mesh.pp, edges=edges)
    return only_plan(replace(question, hardware=replace(question.hardware, links=links)), layout, plan.setting)


def _ranked(problem: PlanProblem, evaluation: Evaluation, missing: str) -> FormulaRanking:
    forecasts = {plan.layout.name: forecast_of_layout(problem, plan, missing) for plan in evaluation.plans}
    runs = [plan for plan in evaluation.plans if _runs(plan)]
    costs = {run.layout.name: _cost(problem, run, forecasts[run.layout.name]) for run in runs}
    over = {name: reason for name in costs if (reason := problem.excess(forecasts[name])) is not None}
    entries = [
        Contender(
            plan=run, cost=TimeBounds.exactly(costs[run.layout.name]), axes=run.layout.num_axes,
            excess=over.get(run.layout.name),
        )
        for run in sorted(runs, key=lambda run: (run.layout.num_axes, run.layout.name))
    ]  # fmt: skip
    best = winner(entries, band=problem.band) if entries else None
    rest = [plan for plan in evaluation.plans if plan is not best]
    rest.sort(key=lambda plan: (not plan.fits, plan.layout.name in over))
    order = (*((best,) if best else ()), *rest)
    return FormulaRanking(
        evaluation=evaluation, order=order, forecasts=forecasts, costs=costs, over=over, missing=missing
    )


def _runs(plan: LayoutPlan) -> bool:
    """A rank holds it, and ranks here can run it."""
    return plan.fits and not plan.unsupported


def _cost(problem: PlanProblem, plan: LayoutPlan, forecast: Forecast) -> float:
    """Seconds of a step, of all GPUs together where money counts."""
    seconds = plan.step_seconds if forecast.step_seconds is None else forecast.step_seconds
    return seconds * plan.layout.mesh.world_size if problem.counts_money else seconds


def forecast_of_layout(problem: PlanProblem, plan: LayoutPlan, missing: str = "") -> Forecast:
    """Forecast by formula, part by part, with the corrections that earlier runs taught."""
    pool, steps, world = problem.pool, problem.line.train.steps, plan.layout.mesh.world_size
    terms = () if missing else _terms(problem, plan)
    setting = plan.setting if plan.layout.mesh.pp > 1 else replace(plan.setting, schedule=None)
    step = sum(term.seconds for term in terms) if terms else None
    wall = None if step is None else steps * step
    hours = None if wall is None else wall * world / 3600
    forecast = Forecast(
        parameters=problem.transformer.parameters,
        memory_bytes=round(plan.memory.total),
        memory_causes=plan.memory.causes,
        step_seconds=step,
        wall_seconds=wall,
        gpu_hours=hours,
        money=money_of(hours, pool),
        device_flops=pool.gpu.flops_per_second.get(problem.precision),
        bubble=plan.parts.bubble / (plan.step_seconds - plan.parts.exchange - plan.parts.optimizer)
        if plan.layout.mesh.pp > 1
        else None,
        terms=terms,
        buckets=_buckets(problem, plan, missing),
        updates=None if missing else plan.updates,
        way=setting.words(problem.line),
        device_name=problem.device_name,
        missing=missing,
        origin="formula" if missing else problem.calibration.origin(f"rates {pool.rates_origin}"),
    )
    return problem.interrupted(forecast, world)


def _buckets(problem: PlanProblem, plan: LayoutPlan, missing: str) -> GradientBuckets | None:
    """Buckets of DDP; None: it is something else."""
    layout, line = plan.layout, problem.line
    if not layout.wrapping.is_ddp or layout.replicas == 1:
        return None
    is_known = not missing and line.train.compression.kind == "none"
    passes = line.train.global_batch / (layout.replicas * plan.setting.micro_batch)
    return exposed_buckets(
        GRADIENT_BYTES * problem.transformer.parameters, bucket_bytes(line), ranks=layout.replicas,
        seconds=by_latency(link_rates(problem.pool, layout.replicas), layout.replicas) if is_known else None,
        backward=BACKWARD * plan.parts.compute / passes, latency_origin=problem.pool.latency_origin,
    )  # fmt: skip


def _terms(problem: PlanProblem, plan: LayoutPlan) -> tuple[Term, ...]:
    calibration, kind = problem.calibration, kind_of(plan.layout.mesh)
    terms = []
    for part, names in TERMS.items():
        raw = sum(getattr(plan.parts, name) for name in names)
        origin = problem.pool.exchange_origin if part == "communication" else problem.pool.rates_origin
        if raw or part == "compute":
            terms.append(calibration.corrected(part, kind, raw, origin))
    return (*terms, calibration.learned("data", problem.line.train.global_batch / plan.layout.mesh.data_parallel))


def candidates_of(problem: PlanProblem, ranking: FormulaRanking) -> tuple[Candidate, ...]:
    """One for each layout, the chosen one first, each with one reason."""
    candidates = []
    for number, plan in enumerate(ranking.order):
        reason = reason_of(problem, ranking, plan)
        if number == 1 and reason.verdict in ("lost", "more_axes"):
            reason = replace(reason, verdict="runner_up")
        candidates.append(candidate_of(plan.layout, reason, ranking.forecasts[plan.layout.name]))
    return (*candidates, *_not_weighed(ranking))


def _not_weighed(ranking: FormulaRanking) -> Iterator[Candidate]:
    """Layouts of which even the bound is beyond the band of the best, the nearest first."""
    chosen = ranking.chosen
    assert chosen is not None, "without a plan nothing is left out by its bound"
    for layout, least in sorted(ranking.evaluation.slower.items(), key=lambda each: each[1]):
        more = 100 * (least / chosen.step_seconds - 1)
        reason = PlanReason("lost", f"{more:+.1f} % or more: no way to run it takes less than {least:.2f} s")
        forecast = Forecast(missing="it was not weighed, as its bound is slower than the chosen plan")
        yield candidate_of(layout, reason, forecast)


def reason_of(problem: PlanProblem, ranking: FormulaRanking, plan: LayoutPlan) -> PlanReason:
    """The first reason that applies: of what cannot run, does not fit, is beyond a bound, is slower, is less simple."""
    name = plan.layout.name
    if ranking.chosen is plan:
        return PlanReason("chosen", _why_chosen(ranking, plan))
    behind = _behind(ranking, plan)
    if plan.unsupported:
        return PlanReason("unsupported", f"{behind}{plan.unsupported}" if plan.fits else plan.unsupported)
    if not plan.fits:
        return PlanReason("no_fit", f"no fit: {_largest_causes(problem, plan)}")
    if name in ranking.over:
        return ranking.over[name]
    return _why_lost(problem, ranking, plan, behind)


def _why_lost(problem: PlanProblem, ranking: FormulaRanking, plan: LayoutPlan, behind: str) -> PlanReason:
    """Verdict on what fits, runs and is within the bounds."""
    name, chosen = plan.layout.name, ranking.chosen
    assert chosen is not None, "what fits and runs is chosen, or loses to what is"
    if ranking.missing:
        return _by_axes(plan, chosen, "")
    own, best = ranking.costs[name], ranking.costs[chosen.layout.name]
    if own <= best * (1 + problem.band) and plan.layout.num_axes > chosen.layout.num_axes:
        return _by_axes(plan, chosen, f"{behind}in the band, ")
    part, seconds = plan.parts.largest_over(chosen.parts)
    words = f"{behind}{PART_WORDS[part]} {format_step(seconds)} longer" if seconds > 0 else f"{behind}as fast".strip()
    return PlanReason("dearer" if problem.counts_money else "lost", words)


def _by_axes(plan: LayoutPlan, chosen: LayoutPlan, words: str) -> PlanReason:
    if plan.layout.num_axes == chosen.layout.num_axes:
        return PlanReason("lost", f"{words}no simpler")
    return more_axes(plan.layout.num_axes, chosen.layout.num_axes, words)


def _behind(ranking: FormulaRanking, plan: LayoutPlan) -> str:
    """`+15.6 %: `, against the chosen plan; empty: a time is missing."""
    chosen = ranking.chosen
    if chosen is None or ranking.missing or not plan.fits:
        return ""
    own, best = (ranking.forecasts[layout_plan.layout.name].step_seconds or 0.0 for layout_plan in (plan, chosen))
    return f"{100 * (own / best - 1):+.1f} %: "


def _why_chosen(ranking: FormulaRanking, plan: LayoutPlan) -> str:
    axes = {0: "one rank", 1: "one axis"}.get(plan.layout.num_axes, f"{plan.layout.num_axes} axes")
    if plan.layout.name in ranking.over:
        return "no plan is within the bounds, this one comes nearest"
    bound = ranking.evaluation.search.bound_seconds
    if bound is None:
        return f"{axes}, the fewest of what fits"
    above = (ranking.forecasts[plan.layout.name].step_seconds or 0.0) / bound - 1
    return f"{axes}; {100 * above:.1f} % above the bound"


def _largest_causes(problem: PlanProblem, plan: LayoutPlan) -> str:
    """The fewest causes, largest first, without which it would fit."""
    has = problem.pool.usable_bytes(problem.pool.slots) or 0.0
    needed, words = plan.memory.total, []
    for name, size in sorted(plan.memory.by_cause.items(), key=lambda each: -each[1]):
        words.append(f"{name} {format_bytes(size)}")
        needed -= size
        if needed <= has:
            break
    return f"{', '.join(words)}; a rank may hold {format_bytes(has)}"


def fitting_layout(problem: PlanProblem) -> FittingPlan | None:
    """What would be chosen; None: nothing fits."""
    try:
        question = formula_question(problem, world_of(problem))
        if problem.line.train.memory.offload == "none" and memory_bound_bytes(question) > question.usable_bytes:
            return None
        ranking = rank_layouts(problem)
    except ConfigError:
        return None
    chosen = ranking.chosen
    if chosen is None:
        return None
    return FittingPlan(chosen.name, ranking.forecasts[chosen.layout.name].step_seconds, chosen.memory.total)


def layout_holds(problem: PlanProblem, chosen: LayoutPlan, mesh: Mesh, micro_batch: int) -> bool:
    """Whether a rank holds the chosen plan on another number of ranks."""
    question = formula_question(problem, mesh.world_size, on_host=chosen.on_host)
    layout = WrappedLayout.of(mesh, chosen.layout.wrapping)
    setting = replace(chosen.setting, micro_batch=micro_batch)
    return layout_memory(question, layout, setting).total <= question.usable_bytes


def _miss(problem: PlanProblem, plan: LayoutPlan, has: float) -> str:
    """Why a layout cannot be chosen where none can."""
    if plan.fits:
        return f"{plan.name} would fit, but {plan.unsupported}"
    return (
        f"{plan.name} needs {plan.memory.total / has if has else 0:.1f} times that ({_largest_causes(problem, plan)})"
    )


def refuse_layouts(problem: PlanProblem, ranking: FormulaRanking, change: str) -> ConfigError:
    """Nothing fits and runs: the two nearest misses, if possible of those that ranks here could run, and what would."""
    if not ranking.order:
        batch = problem.line.train.global_batch
        return ConfigError(
            f"plan: wanted a layout of {world_of(problem):,} ranks that shares train.global_batch = {batch} evenly, "
            "found none; fewer GPUs or a larger batch works"
        )
    has = problem.pool.usable_bytes(problem.pool.slots) or 0.0
    misses = sorted(
        (plan for plan in ranking.order if not plan.unsupported), key=lambda plan: plan.memory.total
    ) or list(ranking.order)
    nearest = "; ".join(_miss(problem, plan, has) for plan in misses[:2])
    return ConfigError(
        f"plan: wanted room for {problem.transformer.parameters / 1e9:.1f} B parameters on {problem.pool.size} x "
        f"{format_bytes(has)} usable: {nearest}; "
        f"{change or 'larger devices are needed'}"
    )
