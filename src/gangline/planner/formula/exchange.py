"""What data-parallel ranks of a transformer by formula exchange in a step: bytes, messages, seconds. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from gangline.fabric.traffic.order_paths import RingTraffic
from gangline.planner.cost.averaging import bucket_count, compression_work, messages, shard_bytes
from gangline.planner.cost.exchange import num_steps, sent_bytes
from gangline.planner.cost.optimizer import ADAMW, OptimizerModel
from gangline.planner.formula.step_time import Hardware, Stages
from gangline.planner.layouts.enumerate import Sync
from gangline.planner.layouts.layout import Layout
from gangline.planner.settings import GRADIENT_BYTES, PASS_BYTES, StepLoad
from gangline.spec.compression import Compression
from gangline.spec.plan import Precision
from gangline.spec.profile import ModelProfile, ParameterShape


@dataclass(frozen=True, kw_only=True, slots=True)
class GradientAveraging:
    """How data-parallel ranks average their gradients."""

    compression: Compression = Compression()
    bucket_bytes: int | None = None
    """Size of DDP's buckets; None: torch's own."""
    shapes: Sequence[ParameterShape] = ()
    """Shapes of all parameters, for a compression that goes by them."""


WHOLE = GradientAveraging()


def exchange_seconds(
    layout: Layout, parameters: float, hardware: Hardware, *, blocks: float, sync: Sync, micro_batches: int,
    precision: Precision = "bf16", optimizer: OptimizerModel = ADAMW, averaging: GradientAveraging = WHOLE,
) -> float:  # fmt: skip
    """What data-parallel ranks move in a step, before any of it is hidden."""
    seconds = 0.0
    found = exchanges(
        layout, parameters, blocks=blocks, sync=sync, micro_batches=micro_batches, precision=precision,
        optimizer=optimizer, averaging=averaging,
    )  # fmt: skip
    for wire_bytes, ranks, stride, steps in found:
        seconds += hardware.links.ring_seconds(wire_bytes, ranks, steps=steps, rank_stride=stride)
    return seconds


def exchanges(
    layout: Layout, parameters: float, *, blocks: float, sync: Sync, micro_batches: int,
    precision: Precision = "bf16", optimizer: OptimizerModel = ADAMW, averaging: GradientAveraging = WHOLE,
) -> list[tuple[float, int, int, float]]:  # fmt: skip
    """Rings of data-parallel ranks in a step: bytes that a rank sends, ranks, their distance, and how many
    messages follow each other. No RingTraffic: a plan asks for thousands.

    Copies reduce their gradients once, in buckets; those that share the optimizer also send the new parameters, without
    matrices, whose owners do; shards of a block, and of what is around them, are gathered once, or twice a
    micro-batch; replicas of shards then average their part.
    """
    width = PASS_BYTES[precision]
    mesh, shards, replicas = layout.mesh, layout.shards, layout.replicas
    sent, steps = _averaged(layout, parameters / shards, averaging)
    if not layout.wrapping.shards:
        if layout.wrapping.shares_optimizer:
            work = optimizer.matrix_work
            owned = work.parameters / (mesh.pp * mesh.tp) if work else 0.0
            sent += sent_bytes("all_gather", replicas, GRADIENT_BYTES * (parameters - owned))
            steps += num_steps("all_gather", replicas)
        return [(sent, replicas, mesh.tp * mesh.cp, steps)]
    gathers = 2 * micro_batches if layout.wrapping.reshards else 1
    reductions = micro_batches if sync == "each" else 1
    reduced = shard_bytes(averaging.compression) * parameters
    moved = sent_bytes("all_gather", shards, gathers * width * parameters + reductions * reduced)
    waits = (gathers + reductions) * (blocks + 1) * num_steps("all_gather", shards)
    return [(moved, shards, mesh.tp, waits), (sent, replicas, mesh.tp * shards, steps)]


def formula_rings(
    profile: ModelProfile,
    layout: Layout,
    load: StepLoad,
    averaging: GradientAveraging,
    *,
    stages: Stages | None = None,
) -> list[RingTraffic]:
    """Rings of data-parallel ranks of an average stage, of the fullest one of `stages` if given."""
    mesh, parameters, blocks = layout.mesh, profile.parameters / layout.mesh.pp, (profile.blocks or 0) / layout.mesh.pp
    if stages is not None:
        parameters, blocks = max(stages.rank_parameters), max(stages.rank_blocks)
    found = exchanges(
        layout, parameters / mesh.tp, blocks=blocks, sync=load.memory.gradient_sync, micro_batches=load.micro_batches,
        precision=load.precision, optimizer=OptimizerModel(matrix_work=profile.matrix_work), averaging=averaging,
    )  # fmt: skip
    return [
        RingTraffic(wire_bytes=sent, ranks=ranks, rank_stride=stride, steps=steps)
        for sent, ranks, stride, steps in found
    ]


def _averaged(layout: Layout, entries: float, averaging: GradientAveraging) -> tuple[float, float]:
    """Bytes that a rank sends to average so many gradients with other replicas, and messages that follow each other."""
    ranks, sent, steps = layout.replicas, 0.0, 0.0
    if ranks > 1:
        given = averaging.bucket_bytes if layout.wrapping.is_ddp else None  # torch's own size for all others
        buckets = bucket_count(GRADIENT_BYTES * entries, given)
        for kind, size in messages(entries, averaging.shapes, averaging.compression, ranks=ranks):
            sent += sent_bytes(kind, ranks, size)
            steps += buckets * num_steps(kind, ranks)
    return sent, steps


def squeeze_seconds(layout: Layout, parameters: float, hardware: Hardware, averaging: GradientAveraging) -> float:
    """What compression reads and writes before and after replicas average; 0: nothing is squeezed."""
    if layout.replicas == 1:
        return 0.0
    _, moved = compression_work(parameters / layout.shards, 0, averaging.compression, buckets=1)
    return moved / hardware.memory_bytes_per_second
