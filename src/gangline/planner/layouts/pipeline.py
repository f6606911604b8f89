"""Pipelines: degrees, schedule, the blocks of each stage, and the options that none supports. Pure.

A stage is a node, and the schedule is the one with the smallest bubble. Planner and ranks refuse conflicts in the same
words.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate
from typing import Any

from gangline.errors import ConfigError
from gangline.planner.layouts.bubble import (
    bubble,
    bubble_share,
    has_closed_form,
    most_live,
    require_schedule,
    runnable_schedules,
)
from gangline.planner.layouts.degrees import tensor_mesh
from gangline.planner.layouts.schedules import SPLIT, num_stages
from gangline.spec.config.line import Line
from gangline.spec.config.matrix_rule import read_matrix_rule
from gangline.spec.mesh import Mesh
from gangline.spec.plan import PipelineSchedule, Plan
from gangline.spec.profile import ModelProfile, PipelinePieces, Trace

SIMULATED_PER_STAGE = 8
"""Micro-batches a stage of which a schedule's order is plain."""


def pipeline_mesh(world: int, nodes: int, profile: ModelProfile | None) -> Mesh:
    """A stage is a node, its ranks share the shards; on one node as many stages as ranks and blocks allow.

    Raises:
        ConfigError: There is one rank only.
    """
    if world < 2:
        raise ConfigError(f'train.strategy: "pp" wants two ranks or more, found {world}; "none" works on one')
    if nodes > 1:
        return Mesh(pp=nodes, dp_shard=world // nodes)
    most = profile.blocks if profile and profile.blocks else world
    stages = max((each for each in range(1, world + 1) if world % each == 0 and each <= most), default=1)
    return Mesh(pp=stages, dp_shard=world // stages)


def three_axis_mesh(world: int, nodes: int, profile: ModelProfile | None) -> Mesh:
    """Stages over nodes, tensor parallelism inside one, shards over the rest, each at least 2.

    Raises:
        ConfigError: There are too few ranks.
    """
    stages = nodes if nodes > 1 else 2
    inside = world // stages
    if world % stages or inside % 2 or inside < 4:
        raise ConfigError(
            f'train.strategy: "3d" wants {stages} stages of four ranks or more, in pairs, found {world} ranks; '
            f'{4 * stages} work, or "explicit" with your own degrees'
        )
    tensor = tensor_mesh(inside // 2, 1, profile, strategy="3d").tp
    return Mesh(pp=stages, dp_shard=inside // tensor, tp=tensor)


def require_stages(line: Line, mesh: Mesh, micro_batch: int, profile: ModelProfile | None) -> None:
    """Refuse a pipeline that `line` asks for and that cannot run, before anything is queued.

    Raises:
        ConfigError: It has more stages than blocks, or micro-batches that its schedule does not take.
    """
    if mesh.pp == 1:
        return
    requested = line.train.mesh.pp_schedule
    stages = mesh.pp if requested == "auto" else num_stages(requested, mesh.pp)
    blocks = profile.blocks if profile else None
    if blocks is not None and stages > blocks:
        per_rank = stages // mesh.pp
        fewer = f"train.mesh.pp up to {blocks // per_rank} works, or a deeper model"
        works = fewer if blocks >= 2 * per_rank else 'a deeper model works, or "fsdp"'
        raise ConfigError(
            f"train.mesh.pp = {mesh.pp}: {'' if requested == 'auto' else requested + ' has '}{stages} stages, more "
            f"than the model's {blocks} blocks; {works}"
        )
    if requested != "auto":
        share = line.train.global_batch // mesh.data_parallel
        require_schedule(requested, mesh.pp, share // micro_batch, share=share)
    for reason in pipeline_conflicts_of_line(line, mesh):
        raise ConfigError(reason)


def choose_schedule(line: Line, mesh: Mesh, micro_batch: int, profile: ModelProfile | None) -> PipelineSchedule:
    """What the line says, else the schedule that leaves least idle; of equals the one that holds least, the simplest.

    Two stages a rank are chosen only for a model that is known to have the blocks.
    """
    requested = line.train.mesh.pp_schedule
    if mesh.pp == 1 or requested != "auto":
        return "1f1b" if requested == "auto" else requested
    micro_batches = num_micro_batches(line, mesh, micro_batch)
    works = runnable_schedules(mesh.pp, micro_batches, blocks=profile.blocks if profile else None)

    def badness(schedule: PipelineSchedule) -> tuple[float, float, int]:
        idle, live = _played(schedule, mesh.pp, micro_batches)
        return round(idle, 6), live, works.index(schedule)

    return min((work for work in works if not (line.train.compile and work in SPLIT)), key=badness)


@lru_cache(maxsize=4096)
def _played(schedule: PipelineSchedule, ranks: int, micro_batches: int) -> tuple[float, float]:
    """Idle share, and most micro-batches that a rank holds; a step with more than enough for the ranks
    repeats itself, so that it is played in part, and ranks that hold all of them are counted."""
    if has_closed_form(ranks, micro_batches):
        live = max(most_live(schedule, ranks, rank, micro_batches) for rank in range(ranks))
        return bubble_share(schedule, ranks, micro_batches), live
    count = min(micro_batches, SIMULATED_PER_STAGE * ranks)
    played = bubble(schedule, ranks, count)
    holds_all = max(played.live) >= count
    return played.bubble, float(micro_batches) if holds_all else max(played.live)


def idle_share(
    line: Line, mesh: Mesh, micro_batch: int, schedule: PipelineSchedule, trace: Trace | None = None
) -> float | None:
    """Share of time in which ranks wait for others, or for the dearest stage; None: there is no pipeline.

    Forward and both halves of backward last alike; without a `trace` of the model stages do, too.
    """
    if mesh.pp == 1:
        return None
    weights = stage_weights(trace, num_stages(schedule, mesh.pp))
    count = num_micro_batches(line, mesh, micro_batch)
    played = bubble(schedule, mesh.pp, min(count, SIMULATED_PER_STAGE * mesh.pp), weights=weights)
    more = count / min(count, SIMULATED_PER_STAGE * mesh.pp)  # of which each takes as long as on the busiest rank
    seconds = played.seconds + (more - 1) * max(played.busy)
    return round(1 - more * sum(played.busy) / (mesh.pp * seconds), 4)


def live_micro_batches(line: Line, mesh: Mesh, micro_batch: int, profile: ModelProfile | None) -> float:
    """Most that a rank holds the activations of, each of the stages that are its own; 1 without a pipeline.

    A schedule that will be refused counts as 1F1B.
    """
    if mesh.pp == 1:
        return 1.0
    count = max(1, num_micro_batches(line, mesh, micro_batch)) if micro_batch else 1
    schedule = schedule_of(line, mesh, micro_batch, profile) if micro_batch else None
    return float(min(mesh.pp, count)) if schedule is None else _played(schedule, mesh.pp, count)[1]


def schedule_of(line: Line, mesh: Mesh, micro_batch: int, profile: ModelProfile | None) -> PipelineSchedule | None:
    """The schedule of a pipeline; None: there is no pipeline, or none that its micro-batches can take."""
    count = max(1, num_micro_batches(line, mesh, micro_batch))
    works = runnable_schedules(mesh.pp, count, blocks=profile.blocks if profile else None)
    if mesh.pp == 1 or not works or line.train.mesh.pp_schedule not in ("auto", *works):
        return None
    return choose_schedule(line, mesh, micro_batch, profile)


def num_micro_batches(line: Line, mesh: Mesh, micro_batch: int) -> int:
    """Micro-batches of one data-parallel rank in one step."""
    return line.train.global_batch // mesh.data_parallel // micro_batch


def pipeline_conflicts_of_line(line: Line, mesh: Mesh) -> list[str]:
    """Conflicts of the options of `line` on `mesh`; empty: none."""
    train = line.train
    chunks = 1 if train.memory.loss_chunks == "auto" else train.memory.loss_chunks
    return [] if mesh.pp == 1 else list(_conflicts(
        pp=mesh.pp, command=line.project.command is not None, stragglers=train.recovery.stragglers,
        compiled=train.compile, schedule=train.mesh.pp_schedule, compression=train.compression.kind, chunks=chunks,
        optimizer=line.optimizer,
    ))  # fmt: skip


def pipeline_conflicts_of_plan(plan: Plan) -> list[str]:
    """Conflicts of a plan with stages."""
    return list(_conflicts(
        pp=plan.mesh.pp, command=plan.program.task is None, stragglers=plan.recovery.stragglers,
        compiled=plan.compile, schedule=plan.pp_schedule, compression=plan.compression.kind,
        chunks=plan.memory.loss_chunks, optimizer=plan.optimizer,
    ))  # fmt: skip


def _conflicts(
    *, pp: int, command: bool, stragglers: str, compiled: bool, schedule: str, compression: str, chunks: int,
    optimizer: Mapping[str, Any],
) -> Iterator[str]:  # fmt: skip
    rule = read_matrix_rule(optimizer)
    if command:
        yield command_axis_refusal("pp", pp)
    if stragglers == "rebalance":
        yield (
            'train.recovery.stragglers: "rebalance" gives replicas other numbers of micro-batches, which stages cannot '
            'take; "name" and "evict" work in a pipeline'
        )
    if compiled and schedule in SPLIT:
        yield (
            f'train.compile: wanted false with pp_schedule = "{schedule}", which takes backward passes apart; '
            '"1f1b" and "interleaved_1f1b" work compiled'
        )
    if compression not in ("none", "bf16"):
        yield (
            f'train.compression.kind: "{compression}" is not supported in pipelines; "none" works, and "bf16" with '
            "dp_shard"
        )
    if chunks > 1:
        yield (
            f"train.memory.loss_chunks: wanted 1 in a pipeline, found {chunks}: its last stage takes micro-batches, "
            "smaller ones work"
        )
    if rule is not None and rule.overlaps:
        yield (
            'optimizer.overlap: "forward" has updates arrive in the forward pass of a whole model, which no rank of a '
            'pipeline makes; "off" works there'
        )


def command_axis_refusal(axis: str, degree: int) -> str:
    """Axes along which only the runtime's own loop can cut a model."""
    return (
        f"train.mesh.{axis}: wanted 1 for a command, found {degree}; a program's own loop works with dp_replicate, "
        f"dp_shard, cp and tp, project.task with {axis}, too"
    )


def cut_into_stages(costs: Sequence[float], stages: int, *, embed: float = 0.0, head: float = 0.0) -> list[range]:
    """Blocks of each stage, one or more each, so that the dearest stage is as cheap as can be; `embed` and `head` are
    the costs of what the first and the last stage do besides.

    Raises:
        ConfigError: There are more stages than blocks.
    """
    if stages > len(costs):
        raise ConfigError(
            f"a pipeline of {stages} stages wants {stages} blocks or more, the model has {len(costs)}; "
            f"{len(costs)} stages work, or a deeper model"
        )
    sums = [0.0, *accumulate(costs)]

    def cost(stage: int, start: int, stop: int) -> float:
        return sums[stop] - sums[start] + embed * (stage == 0) + head * (stage == stages - 1)

    best: dict[tuple[int, int], tuple[float, tuple[int, ...]]] = {(0, 0): (0.0, ())}
    """Stages and blocks so far to the dearest stage, and where each one begins."""
    for stage in range(stages):
        for stop in range(stage + 1, len(costs) - (stages - 1 - stage) + 1):
            best[stage + 1, stop] = min(
                (max(best[stage, start][0], cost(stage, start, stop)), (*best[stage, start][1], start))
                for start in range(stage, stop)
                if (stage, start) in best
            )
    begins = best[stages, len(costs)][1]
    return [range(start, stop) for start, stop in zip(begins, [*begins[1:], len(costs)], strict=True)]


def stage_ranges(pieces: PipelinePieces, stages: int) -> list[range]:
    """Numbers of the blocks of each stage, balanced by parameters, as ranks cut.

    Raises:
        ConfigError: There are more stages than blocks.
    """
    return cut_into_stages(pieces.block_parameters, stages, embed=pieces.embed_parameters, head=pieces.head_parameters)


def stages_of_parameters(pieces: PipelinePieces, stages: int, names: Iterable[str]) -> list[int | None]:
    """Stage that holds each parameter; None: no piece has it.

    Raises:
        ConfigError: There are more stages than blocks.
    """
    held = dict.fromkeys(pieces.embed, 0) | dict.fromkeys(pieces.head, stages - 1)
    for stage, blocks in enumerate(stage_ranges(pieces, stages)):
        held |= {pieces.blocks[block]: stage for block in blocks}

    def stage_of(name: str) -> int | None:
        parts = name.split(".")
        found = (held.get(".".join(parts[:length])) for length in range(len(parts), 0, -1))
        return next((stage for stage in found if stage is not None), None)

    return [stage_of(name) for name in names]


def stage_weights(trace: Trace | None, stages: int) -> tuple[float, ...]:
    """Work of each stage, cut by parameters as the runtime does; empty: of a model that was not traced.

    Half of the parameters around the blocks are taken to come before them; all of the work around them comes after.
    """
    blocks = [unit for unit in trace.units if unit.name] if trace else []
    if sum(unit.count for unit in blocks) < stages:
        return ()
    outside = [unit for unit in trace.units if not unit.name] if trace else []
    return _weights(
        tuple((unit.count, unit.parameters, unit.flops) for unit in blocks),
        sum(unit.parameters for unit in outside) / 2, sum(unit.flops for unit in outside), stages,
    )  # fmt: skip


@lru_cache(maxsize=256)
def _weights(rows: tuple[tuple[int, int, float], ...], end: float, head_flops: float, stages: int) -> tuple[float, ...]:
    blocks = [(parameters, flops) for count, parameters, flops in rows for _ in range(count)]
    ranges = cut_into_stages([parameters for parameters, _ in blocks], stages, embed=end, head=end)
    work = [sum(blocks[number][1] for number in each) for each in ranges]
    work[-1] += head_flops
    return tuple(work) if all(work) else ()
