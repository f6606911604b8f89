"""Question of a line about a transformer known by its shape: search space, what ranks here run, hardware."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from math import inf

from gangline.planner.cost.exchange import LinkRates, link_rates
from gangline.planner.cost.speeds import NO_MATRIX_RULE, host_rates
from gangline.planner.cost.traffic import edge_bytes
from gangline.planner.formula.evaluate import LayoutPlan, only_plan
from gangline.planner.formula.inputs import Hardware, Question
from gangline.planner.formula.step_time import formula_rings
from gangline.planner.layouts.enumerate import SearchSpace, Sync, unsupported_rule
from gangline.planner.layouts.layout import Layout, explicit_layout
from gangline.planner.layouts.schedules import SPLIT
from gangline.planner.pool import MOST_AUTO, check_world, divisors, most_ranks, ranks_per_node
from gangline.planner.problem import PlanProblem
from gangline.planner.settings import CHUNKS, SHARES, bucket_bytes, line_memory, step_load
from gangline.spec.config.line import Line
from gangline.spec.plan import SCHEDULE_NAMES, PipelineSchedule
from gangline.spec.strategies import traits_of


def world_of(problem: PlanProblem) -> int:
    """Ranks of the candidates: what the line says, else all devices: peers of one model see the same samples.

    Raises:
        ConfigError: The line asks for ranks that are not there.
    """
    line, pool = problem.line, problem.pool
    ranks = line.train.ranks if line.project.distributed else 1
    if line.train.strategy == "explicit":
        return explicit_layout(line).mesh.world_size
    if isinstance(ranks, int):
        check_world(line, pool, ranks, shares=1)
        return ranks
    return most_ranks(line, pool)


def formula_question(problem: PlanProblem, world: int, *, on_host: bool = False) -> Question:
    """Candidates on `world` ranks; `on_host`: shards wait there."""
    hardware, missing = _hardware(problem, world)
    optimizer = problem.optimizer
    if on_host and optimizer.matrix_work is not None:
        missing = missing or NO_MATRIX_RULE
    local = ranks_per_node(problem.pool, world)
    usable, room = problem.pool.usable_bytes(local), problem.pool.usable_host_bytes(local)
    return Question(
        model=problem.transformer,
        space=_search_space(problem, world, on_host=on_host),
        hardware=hardware,
        missing=missing,
        usable_bytes=inf if usable is None else usable,
        usable_host_bytes=inf if room is None else room,
        precision=problem.precision,
        memory=line_memory(problem.line),
        optimizer=optimizer,
        compression=problem.line.train.compression,
        bucket_bytes=bucket_bytes(problem.line),
        support=partial(_unsupported, problem.line),
    )


def may_offload(problem: PlanProblem) -> bool:
    """The line leaves it open whether shards wait on the host, and what that takes is known."""
    is_open = problem.line.train.memory.offload == "auto" and problem.pool.device == "cuda"
    return is_open and problem.optimizer.matrix_work is None


def _search_space(problem: PlanProblem, world: int, *, on_host: bool) -> SearchSpace:
    """What the line leaves open, every value of it."""
    model, line, train = problem.transformer, problem.line, problem.line.train
    node = ranks_per_node(problem.pool, world)
    inside = divisors(node)
    micro_batch, memory = train.mesh.micro_batch, train.memory
    requested = train.mesh.pp_schedule
    return SearchSpace(
        world_size=world,
        ranks_per_node=node,
        global_batch=train.global_batch,
        tp=inside,
        pp=[each for each in divisors(world) if each <= model.layers],
        cp=inside,
        ep=[each for each in divisors(model.experts) if world % each == 0],
        syncs=("last", "each") if memory.gradient_sync == "auto" else (memory.gradient_sync,),
        micro_batches=[each for each in divisors(train.global_batch) if each <= MOST_AUTO]
        if micro_batch == "auto"
        else (micro_batch,),
        recompute=tuple(SHARES) if memory.activation_checkpointing == "auto" else (memory.activation_checkpointing,),
        loss_chunks=(1, CHUNKS) if memory.loss_chunks == "auto" else (memory.loss_chunks,),
        schedules=_schedules(line) if requested == "auto" else (requested,),
        on_host=on_host,
        admits=partial(_asked, line),
    )


def _schedules(line: Line) -> Sequence[PipelineSchedule]:
    """Compiled blocks do not take backward passes apart."""
    return [each for each in SCHEDULE_NAMES if not (line.train.compile and each in SPLIT)]


def _asked(line: Line, layout: Layout) -> bool:
    """The line leaves its strategy open, or names this one."""
    requested = line.train.strategy
    if requested == "auto":
        return True
    if requested == "explicit":
        return explicit_layout(line).mesh == layout.mesh
    traits = traits_of(requested)
    return traits is not None and layout.strategy == traits.name


def _unsupported(line: Line, layout: Layout, sync: Sync, loss_chunks: int) -> str:
    """Reason by a rule of the ranks, or one of the line's options."""
    if rule := unsupported_rule(layout, sync=sync, loss_chunks=loss_chunks):
        return rule
    kind, mesh = line.train.compression.kind, layout.mesh
    if line.project.command is not None and (mesh.pp > 1 or mesh.ep > 1 or loss_chunks > 1):
        return "a program's own loop has neither stages, experts of other ranks nor a loss in pieces"
    if kind not in ("none", "bf16") and (mesh.dp_replicate == 1 or layout.num_axes > 1 or sync == "each"):
        return f"train.compression.kind = {kind} is for whole gradients of replicas"
    return ""


def _hardware(problem: PlanProblem, world: int) -> tuple[Hardware, str]:
    """Rates of the pool; where one is missing, rates at which only the work counts, and what is missing."""
    pool = problem.pool
    flops, memory = pool.gpu.flops_per_second.get(problem.precision), pool.gpu.memory_bytes_per_second
    node = ranks_per_node(pool, world)
    lacks = {
        f"flops_per_second.{problem.precision}": flops,
        "memory_bytes_per_second": memory,
        "link_bytes_per_second": pool.gpu.link_bytes_per_second if min(node, world) > 1 else 1.0,
        "network_bytes_per_second": pool.gpu.network_bytes_per_second if world > node else 1.0,
    }
    missing = [name for name, rate in lacks.items() if not rate]
    if not flops or not memory or missing:
        free = LinkRates(node=node, inside=inf, across=inf)
        words = f"[gpu.NAME] of site.toml has no {' and no '.join(missing)} of {pool.name or 'these devices'}"
        return Hardware(flops_per_second=1.0, memory_bytes_per_second=inf, links=free), words
    links = link_rates(pool, world)
    overlap = problem.site.plan.overlap
    return Hardware(
        flops_per_second=flops,
        memory_bytes_per_second=memory,
        links=links,
        overlap=overlap,
        host=host_rates(pool, node),
    ), ""


def in_planned_order(problem: PlanProblem, plan: LayoutPlan) -> LayoutPlan:
    """`plan` with its times on the order of servers that a placer gives its stages, as its certificate has it.

    As it is without stages, a fabric, or rates.
    """
    layout, pool, line, profile = plan.layout, problem.pool, problem.line, problem.profile
    mesh = layout.mesh
    question = formula_question(problem, mesh.world_size, on_host=plan.on_host)
    if mesh.pp == 1 or pool.fabric is None or profile is None or question.missing:
        return plan
    load = step_load(line, layout, plan.setting)
    rings = formula_rings(profile, layout, load)
    edges = edge_bytes(rings, profile, mesh, load, ranks_per_server=question.space.ranks_per_node)
    links = link_rates(pool, mesh.world_size, stages=mesh.pp, edges=edges)
    return only_plan(replace(question, hardware=replace(question.hardware, links=links)), layout, plan.setting)
