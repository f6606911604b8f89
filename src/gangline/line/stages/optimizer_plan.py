"""Plan of a line's matrix rule on the model that was inspected: its work for forecasts, and its owners for people.

`optimizer.cost` reads a table of measured updates, which a process of its own makes.
"""

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from gangline.errors import ConfigError, TrainingError
from gangline.launch.sandbox.environment import passed_on
from gangline.optim.plan.build import build_plan
from gangline.optim.plan.geometry import SyncRate
from gangline.optim.plan.matrix import LogicalMatrix, fragments
from gangline.optim.plan.optimizer_plan import OptimPlan, PlanOptions
from gangline.optim.plan.phases import MatrixPlanReport, report_of
from gangline.optim.plan.routing import RoutedParameter, route_parameters
from gangline.optim.plan.simulate import StepPrediction, simulate
from gangline.optim.plan.work import device_curve, matrix_work, rule_spec
from gangline.planner.layouts.layout import Layout
from gangline.planner.layouts.pipeline import stages_of_parameters
from gangline.planner.layouts.schedules import num_stages, owner_of
from gangline.spec.config.line import Line
from gangline.spec.config.matrix_options import RULES
from gangline.spec.config.matrix_rule import MatrixRuleTable, read_matrix_rule
from gangline.spec.devices import Inventory
from gangline.spec.forecast import UpdateTraffic
from gangline.spec.plan import Device, PipelineSchedule
from gangline.spec.profile import ModelProfile, PipelinePieces
from gangline.spec.transformer import Transformer

MOST_BLOCKS = 512
"""Most blocks of a model that defines its stages: model code states how many, and the time of a cut grows with their
square."""


def with_matrix_work(line: Line, profile: ModelProfile | None) -> ModelProfile | None:
    """`profile` with the work of the line's matrix rule.

    Of a model known by its shape alone that is the work of `block_matrices`: it has no names for `exclude` and routes.

    Raises:
        ConfigError: No parameter is a matrix, or a route does not fit the model.
    """
    table = _table(line, profile)
    if table is None or profile is None:
        return profile
    spec, matrices = rule_spec(table.options), line_matrices(line, profile)
    if spec is None or not matrices:
        return profile
    work = matrix_work(
        matrices, spec, PlanOptions.of(table.plan),
        measured=None if table.cost is None else device_curve("cuda", table.cost),  # its curve fills gaps alone
    )  # fmt: skip
    return replace(profile, matrix_work=work)


def block_matrices(model: Transformer) -> list[LogicalMatrix]:
    """Matrices of attention and feed-forward in all blocks, experts each on their own; no embedding, head, router or
    norm."""
    feed = model.feed_matrices
    experts = {f"experts.{at}.{name}": shape for at in range(model.experts) for name, shape in feed.items()}
    block = {**model.attention_matrices, **(feed if model.experts == 1 else experts)}
    return [
        LogicalMatrix(fqn=f"layers.{layer}.{name}", shape=shape)
        for layer in range(model.layers)
        for name, shape in block.items()
    ]


def optimizer_plans(
    line: Line, profile: ModelProfile | None, shape: Layout, device: Device, *, pp_schedule: PipelineSchedule = "1f1b"
) -> tuple[OptimPlan, ...]:
    """Owners on the ranks of `shape`, as they will plan them: one plan for each pipeline rank that has matrices.

    Empty: the line has no rule of known costs, or the matrices of the model or its pieces are not known.
    """
    table, mesh = _table(line, profile), shape.mesh
    if table is None or profile is None:
        return ()
    spec, matrices = rule_spec(table.options), line_matrices(line, profile)
    if spec is None or not matrices:
        return ()
    hosts = mesh.dp_shard * mesh.cp * mesh.tp
    options = PlanOptions.of(table.plan, device_curve(device, table.cost))
    owners = 1 if table.repeats else shape.update_mesh.dp_replicate
    held = _by_pipeline_rank(matrices, profile, mesh.pp, pp_schedule) if mesh.pp > 1 else [matrices]
    return tuple(
        build_plan(logical_matrices, spec, ranks=owners, hosts=hosts, options=options)
        for logical_matrices in held
        if logical_matrices
    )


def predicted(plans: Sequence[OptimPlan], updates: UpdateTraffic | None) -> StepPrediction | None:
    """Times of one plan whose updates travel during the forward pass, by the rate and the computing of a forecast;
    None: there is no such plan or forecast."""
    if updates is None or len(plans) != 1 or not updates.seconds:
        return None
    [plan] = plans
    sent = updates.buckets * updates.size_bytes * (plan.ranks - 1) / plan.ranks
    rate = SyncRate(bytes_per_second=sent / updates.seconds, latency_seconds=0.0)
    return simulate(plan, sync=rate, forward_seconds=updates.hiding_seconds)


def plan_reports(
    line: Line, profile: ModelProfile | None, shape: Layout, device: Device, *, pp_schedule: PipelineSchedule,
    updates: UpdateTraffic | None,
) -> tuple[MatrixPlanReport, ...]:  # fmt: skip
    """`optimizer_plans` as documents, with the times that people see; `updates` as of `predicted`."""
    plans = optimizer_plans(line, profile, shape, device, pp_schedule=pp_schedule)
    averaged = not shape.wrapping.shares_optimizer
    return tuple(report_of(plan, predicted(plans, updates) or simulate(plan), averaged=averaged) for plan in plans)


def _by_pipeline_rank(
    matrices: Sequence[LogicalMatrix], profile: ModelProfile, ranks: int, schedule: PipelineSchedule
) -> list[list[LogicalMatrix]]:
    """Matrices of each pipeline rank; empty: the pieces of the model are not known, or one matrix is in none."""
    pieces = profile.pieces or (_pieces(profile.transformer) if profile.transformer else None)
    if pieces is None or len(pieces.blocks) > MOST_BLOCKS:
        return []
    stages = stages_of_parameters(
        pieces, num_stages(schedule, ranks), (logical_matrix.fqn for logical_matrix in matrices)
    )
    found: list[list[LogicalMatrix]] = [[] for _ in range(ranks)]
    for matrix, stage in zip(matrices, stages, strict=True):
        if stage is None:
            return []
        found[owner_of(schedule, ranks, stage)].append(matrix)
    return found


def _pieces(model: Transformer) -> PipelinePieces:
    """Pieces of the model, with the names of `block_matrices`."""
    return PipelinePieces(
        blocks=tuple(f"layers.{layer}" for layer in range(model.layers)),
        block_parameters=(model.block_parameters,) * model.layers,
        embed=(), embed_parameters=model.embedding_parameters, head=(), head_parameters=model.embedding_parameters,
    )  # fmt: skip


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
    return route_parameters(profile.named, exclude=table.exclude, routes=table.routes)


def line_matrices(line: Line, profile: ModelProfile | None) -> list[LogicalMatrix]:
    """Matrices that the rule of `line` updates, by names, else by shape; empty: there is no rule, or neither is
    known."""
    table = _table(line, profile)
    if table is None or profile is None:
        return []
    if not profile.named:
        return block_matrices(profile.transformer) if profile.transformer else []
    return [
        matrix
        for parameter in _routed(table, profile)
        if parameter.kind == "matrix"
        for matrix in fragments(parameter.parameter.name, parameter.parameter.shape, parameter.split)
    ]


TIMEOUT_SECONDS = 600.0
"""Limit on a process that stops at a shape after `measure.matrix_costs.MOST_SECONDS`; one shape may take long."""


def measured_cost_table(line: Line, profile: ModelProfile | None, inventory: Inventory, device: Device) -> str:
    """JSON with seconds of an update for each shape of the model's matrices, on a device of this machine.

    Raises:
        ConfigError: The line has no matrix rule of gangline's own, its matrices are not known, or the devices are
            those of a cluster.
        TrainingError: The process failed.
    """
    table, matrices = read_matrix_rule(line.optimizer), line_matrices(line, profile)
    if table is None or table.rule not in RULES or not matrices:
        raise ConfigError(
            f"--measure-costs: wanted a line with one of the rules {', '.join(RULES)} and a model with matrices, found "
            f"{f'rule {table.rule!r}' if table else 'none'} and {len(matrices)} matrices; "
            "gangline.measure.matrix_costs.cost_table measures a rule of your own"
        )
    if inventory.origin != "this machine":
        raise ConfigError(
            f"--measure-costs: wanted a device of this machine, found {inventory.origin}; run it where ranks will be"
        )
    counts = sorted(Counter(matrix.shape for matrix in matrices).items())
    shapes = [[*shape, count] for shape, count in counts]
    optimizer = {name: value for name, value in line.optimizer.items() if name != "cost"}
    process = subprocess.run(
        [sys.executable, "-m", "gangline.measure.matrix_costs"], env=passed_on(), capture_output=True, text=True,
        input=json.dumps({"device": device, "optimizer": optimizer, "shapes": shapes}), check=False,
        timeout=TIMEOUT_SECONDS,
    )  # fmt: skip
    if process.returncode:
        lines = process.stderr.strip().splitlines() or [f"exit {process.returncode}"]
        raise TrainingError(f"updates were not measured: {lines[-1]}")
    return process.stdout
