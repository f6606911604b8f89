"""What data-parallel ranks of a transformer by formula exchange in a step: bytes, messages, seconds. Pure."""

from collections.abc import Sequence

from gangline.fabric.order_paths import RingTraffic
from gangline.planner.cost.averaging import bucket_count, compression_work, messages, needs_shapes, shard_bytes
from gangline.planner.cost.exchange import num_steps, sent_bytes
from gangline.planner.formula.question import Question, formula_profile
from gangline.planner.formula.step_time import Stages
from gangline.planner.layouts.layout import Layout
from gangline.planner.settings import GRADIENT_BYTES, PASS_BYTES, StepLoad
from gangline.spec.profile import MatrixWork, ModelProfile, ParameterShape


def exchange_seconds(question: Question, layout: Layout, parameters: float, load: StepLoad, *, blocks: float) -> float:
    """What data-parallel ranks move in a step, before any of it is hidden."""
    shapes = formula_profile(question.model).shapes if needs_shapes(load.compression) else ()
    found = exchanges(layout, parameters, load, blocks=blocks, work=question.optimizer.matrix_work, shapes=shapes)
    seconds = 0.0
    for wire_bytes, ranks, stride, steps in found:
        seconds += question.hardware.links.ring_seconds(wire_bytes, ranks, steps=steps, rank_stride=stride)
    return seconds


def exchanges(
    layout: Layout, parameters: float, load: StepLoad, *, blocks: float, work: MatrixWork | None,
    shapes: Sequence[ParameterShape],
) -> list[tuple[float, int, int, float]]:  # fmt: skip
    """Rings of data-parallel ranks in a step: bytes that a rank sends, ranks, their distance, and how many
    messages follow each other. No RingTraffic: a plan asks for thousands.

    Copies reduce their gradients once, in buckets; those that share the optimizer also send the new parameters, without
    matrices, whose owners do; shards of a block, and of what is around them, are gathered once, or twice a
    micro-batch; replicas of shards then average their part.

    Parameters and blocks are those of one rank before shards cut them; `shapes` are those of the whole model, for a
    compression that goes by them.
    """
    mesh, shards, replicas = layout.mesh, layout.shards, layout.replicas
    sent, steps = _averaged(layout, parameters / shards, load, shapes)
    if not layout.wrapping.shards:
        if layout.wrapping.shares_optimizer:
            owned = work.parameters / (mesh.pp * mesh.tp) if work else 0.0
            sent += sent_bytes("all_gather", replicas, GRADIENT_BYTES * (parameters - owned))
            steps += num_steps("all_gather", replicas)
        return [(sent, replicas, mesh.tp * mesh.cp, steps)]
    gathers, reductions = load.rounds(layout.wrapping)
    reduced = shard_bytes(load.compression) * parameters
    moved = sent_bytes("all_gather", shards, gathers * PASS_BYTES[load.precision] * parameters + reductions * reduced)
    waits = (gathers + reductions) * (blocks + 1) * num_steps("all_gather", shards)
    return [(moved, shards, mesh.tp, waits), (sent, replicas, mesh.tp * shards, steps)]


def formula_rings(
    profile: ModelProfile, layout: Layout, load: StepLoad, *, stages: Stages | None = None
) -> list[RingTraffic]:
    """Rings of data-parallel ranks of an average stage, of the fullest one of `stages` if given."""
    mesh, parameters, blocks = layout.mesh, profile.parameters / layout.mesh.pp, (profile.blocks or 0) / layout.mesh.pp
    if stages is not None:
        parameters, blocks = max(stages.rank_parameters), max(stages.rank_blocks)
    found = exchanges(
        layout, parameters / mesh.tp, load, blocks=blocks, work=profile.matrix_work, shapes=profile.shapes
    )
    return [
        RingTraffic(wire_bytes=sent, ranks=ranks, rank_stride=stride, steps=steps)
        for sent, ranks, stride, steps in found
    ]


def _averaged(layout: Layout, entries: float, load: StepLoad, shapes: Sequence[ParameterShape]) -> tuple[float, float]:
    """Bytes that a rank sends to average so many gradients with other replicas, and messages that follow each other."""
    ranks, sent, steps = layout.replicas, 0.0, 0.0
    if ranks > 1:
        given = load.bucket_bytes if layout.wrapping.is_ddp else None  # torch's own size for all others
        buckets = bucket_count(GRADIENT_BYTES * entries, given)
        for kind, size in messages(entries, shapes, load.compression, ranks=ranks):
            sent += sent_bytes(kind, ranks, size)
            steps += buckets * num_steps(kind, ranks)
    return sent, steps


def squeeze_seconds(question: Question, layout: Layout, parameters: float) -> float:
    """What compression reads and writes before and after replicas average; 0: nothing is squeezed."""
    if layout.replicas == 1:
        return 0.0
    _, moved = compression_work(parameters / layout.shards, 0, question.compression, buckets=1)
    return moved / question.hardware.memory_bytes_per_second
