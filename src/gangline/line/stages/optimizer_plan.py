"""Plan of a line's matrix rule on the model that was inspected: its work for forecasts, and its owners for people."""

from dataclasses import replace

from gangline.optim.plan.build import build_plan
from gangline.optim.plan.costs import CPU, DeviceCurve
from gangline.optim.plan.matrix import LogicalMatrix, fragments
from gangline.optim.plan.optimizer_plan import OptimPlan, PlanOptions
from gangline.optim.plan.routing import Route, RoutedParameter, route_parameters
from gangline.optim.plan.work import matrix_work, rule_spec
from gangline.planner.forecast.memory import num_owners
from gangline.planner.shapes.shape import Shape
from gangline.spec.config.line import Line
from gangline.spec.config.matrix_rule import MatrixRuleTable, read_matrix_rule
from gangline.spec.plan import Device
from gangline.spec.profile import ModelProfile


def with_matrix_work(line: Line, profile: ModelProfile | None) -> ModelProfile | None:
    """`profile` with the work of the line's matrix rule.

    Raises:
        ConfigError: No parameter is a matrix, or a route does not fit the model.
    """
    table = _table(line, profile)
    if table is None or profile is None or not profile.named:
        return profile
    spec = rule_spec(table.rule, table.options)
    if spec is None:
        return profile
    work = matrix_work(_matrices(table, profile), spec, element_bytes=PlanOptions(**table.plan).element_bytes)
    return replace(profile, matrix_work=work)


def optimizer_plan(line: Line, profile: ModelProfile | None, shape: Shape, device: Device) -> OptimPlan | None:
    """Owners on the ranks of `shape`, as they will plan them.

    None: the line has no rule of known costs, the names of the model are not known, or stages plan their own matrices.
    """
    table, mesh = _table(line, profile), shape.mesh
    if table is None or profile is None or not profile.named or mesh.pp > 1:
        return None
    spec = rule_spec(table.rule, table.options)
    if spec is None:
        return None
    hosts = mesh.dp_shard * mesh.cp * mesh.tp
    options = PlanOptions(**table.plan, device=CPU if device == "cpu" else DeviceCurve())
    owners = num_owners(shape) // hosts
    return build_plan(_matrices(table, profile), spec, ranks=owners, hosts=hosts, options=options)


def routing(line: Line, profile: ModelProfile | None) -> tuple[RoutedParameter, ...]:
    """Who updates each parameter; empty: the line has no matrix rule, or the names of the model are not known."""
    table = _table(line, profile)
    if table is None or profile is None or not profile.named:
        return ()
    return _routed(table, profile)


def _table(line: Line, profile: ModelProfile | None) -> MatrixRuleTable | None:
    if profile is not None and profile.builds_optimizer:
        return None
    return read_matrix_rule(line.optimizer)


def _routed(table: MatrixRuleTable, profile: ModelProfile) -> tuple[RoutedParameter, ...]:
    routes = [Route(**each) for each in table.routes]
    return route_parameters(profile.named, exclude=table.exclude, routes=routes)


def _matrices(table: MatrixRuleTable, profile: ModelProfile) -> list[LogicalMatrix]:
    return [
        matrix
        for each in _routed(table, profile)
        if each.kind == "matrix"
        for matrix in fragments(each.parameter.name, each.parameter.shape, each.split)
    ]
