"""Options that a pipeline does not support; the planner and the ranks refuse them with the same message."""

from collections.abc import Iterator

from gangline.planner.axes.schedules import SPLIT
from gangline.spec.config.line import Line
from gangline.spec.mesh import Mesh
from gangline.spec.plan import Plan


def pipeline_conflicts_of_line(line: Line, mesh: Mesh) -> list[str]:
    """Conflicts of the options of `line` on `mesh`; empty: none."""
    train = line.train
    chunks = 1 if train.memory.loss_chunks == "auto" else train.memory.loss_chunks
    return [] if mesh.pp == 1 else list(_conflicts(
        pp=mesh.pp, command=line.project.command is not None, stragglers=train.recovery.stragglers,
        compiled=train.compile, schedule=train.mesh.pp_schedule, compression=train.compression.kind, chunks=chunks,
        overlaps=line.optimizer.get("overlap") == "forward",
    ))  # fmt: skip


def pipeline_conflicts_of_plan(plan: Plan) -> list[str]:
    """Conflicts of a plan with stages."""
    return list(_conflicts(
        pp=plan.mesh.pp, command=plan.program.task is None, stragglers=plan.recovery.stragglers,
        compiled=plan.compile, schedule=plan.pp_schedule, compression=plan.compression.kind,
        chunks=plan.memory.loss_chunks, overlaps=plan.optimizer.get("overlap") == "forward",
    ))  # fmt: skip


def _conflicts(
    *,
    pp: int,
    command: bool,
    stragglers: str,
    compiled: bool,
    schedule: str,
    compression: str,
    chunks: int,
    overlaps: bool,
) -> Iterator[str]:
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
    if overlaps:
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
