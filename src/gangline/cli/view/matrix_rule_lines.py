"""Lines of a plan about its matrix rule: what it costs, who owns which matrices, and what travels meanwhile."""

from collections.abc import Iterator

from gangline.cli.view.plan_table import step_words
from gangline.line.stages.optimizer_plan import optimizer_plans, predicted, routing
from gangline.optim.plan.explain import explain_ranks, explain_stages
from gangline.optim.plan.routing import explain_routing
from gangline.planner.choice import PlanChoice
from gangline.planner.cost.optimizer import matrix_updates, optimizer_model
from gangline.planner.layouts.layout import Layout
from gangline.spec.config.line import Line
from gangline.spec.forecast import Forecast, UpdateTraffic
from gangline.spec.profile import MatrixWork, ModelProfile
from gangline.units import format_bytes, format_count, format_step

_RANKS_PLAN = "ranks plan the owners of their matrices, and tell their number"


def matrix_rule_lines(
    rule: str, line: Line, choice: PlanChoice, profile: ModelProfile | None, *, why: bool
) -> Iterator[str]:
    """Lines of a plan with the matrix rule `rule`; with `why` the most loaded owners and who updates each parameter."""
    routed = routing(line, profile)
    is_shape = profile is not None and profile.transformer is not None and not profile.named
    work = profile.matrix_work if profile else None
    if profile is not None and work is not None:
        yield _costs(line, choice, profile, work)
        if is_shape:
            yield "exclude and routes do not count: a shape has no names"
    elif is_shape:
        yield f"{rule}: its costs are not known before the run, it counts as the elementwise rule"
    elif not routed:
        yield f"{rule}: its matrices are not known before the run"
    if routed or (work is not None and why):
        yield from _owners(line, choice, profile, why=why)
    if routed and why:
        yield from explain_routing(routed).splitlines()


def _costs(line: Line, choice: PlanChoice, profile: ModelProfile, work: MatrixWork) -> str:
    shape = Layout(choice.strategy, choice.mesh)
    sent = sum(matrix_update.wire_bytes for matrix_update in matrix_updates(work, shape.update_mesh))
    kept = optimizer_model(line.optimizer, profile).saved_bytes(profile.parameters)
    facts = [
        f"{work.rule}: {format_count(work.parameters)} parameters in its matrices",
        _step_share(choice.forecast),
        f"state {format_bytes(kept)} in all",
        f"{format_bytes(sent)} of parts and updates sent by each rank",
    ]
    return " · ".join(filter(None, facts))


def _step_share(forecast: Forecast) -> str:
    """What the whole optimizer takes of a step, which the plan of owners alone does not know; empty: not known."""
    term = next((each for each in forecast.terms if each.part == "optimizer"), None)
    if term is None:
        return ""
    return f"{step_words(term.seconds)} a step with the exchange and all other parameters ({term.origin})"


def _owners(line: Line, choice: PlanChoice, profile: ModelProfile | None, *, why: bool) -> Iterator[str]:
    shape, updates = Layout(choice.strategy, choice.mesh), choice.forecast.updates
    plans = optimizer_plans(line, profile, shape, choice.device, pp_schedule=choice.pp_schedule)
    averaged = not shape.wrapping.shares_optimizer
    text = explain_stages(plans, predicted(plans, updates), averaged=averaged) if plans else _RANKS_PLAN
    yield from text.splitlines()
    if updates is not None:
        yield _hidden(updates)
    if plans and why:
        yield from explain_ranks(plans)


def _hidden(updates: UpdateTraffic) -> str:
    granted = format_step(updates.hiding_seconds) if updates.hiding_seconds else "no"
    return (
        f"{granted} computing counts as hiding them ([plan] overlap of site.toml); if all of the pass did, it would "
        f"wait for {format_step(updates.least_exposed_seconds)}"
    )
