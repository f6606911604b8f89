"""Times of a pipeline by formula on the order of servers that a placer gives its stages, as its certificate has it."""

from dataclasses import replace

from gangline.planner.forecast.edges import edge_bytes
from gangline.planner.forecast.exchange import link_rates
from gangline.planner.forecast.shape_forecast import ExecutionOptions, pass_load
from gangline.planner.selection.formula_question import averaging_of, formula_question, strategy_of_layout
from gangline.planner.selection.request import PlanRequest
from gangline.planner.shapes.shape import Shape
from gangline.planner.transformer.evaluate import LayoutCandidates
from gangline.planner.transformer.exchange import formula_rings
from gangline.planner.transformer.layout_plan import LayoutPlan, narrowed
from gangline.spec.transformer import Transformer


def in_planned_order(
    request: PlanRequest, model: Transformer, plan: LayoutPlan, options: ExecutionOptions
) -> LayoutPlan:
    """`plan` with its times in that order; as it is without stages, a fabric, or rates."""
    layout, pool, line, profile = plan.layout, request.pool, request.line, request.profile
    mesh = layout.mesh
    question, missing = formula_question(request, model, mesh.world_size, on_host=plan.on_host)
    if mesh.pp == 1 or pool.fabric is None or profile is None or missing:
        return plan
    load = pass_load(line, Shape(strategy_of_layout(layout), mesh), options)
    rings = formula_rings(profile, layout, load, averaging_of(line, profile))
    edges = edge_bytes(rings, profile, mesh, load, ranks_per_server=question.space.ranks_per_node)
    links = link_rates(pool, mesh.world_size, stages=mesh.pp, edges=edges)
    question = replace(
        question, hardware=replace(question.hardware, links=links), space=narrowed(question.space, plan.setting)
    )  # fmt: skip
    found = LayoutCandidates(question, layout, {}).best()
    assert found is not None, "its only candidate"
    return found
