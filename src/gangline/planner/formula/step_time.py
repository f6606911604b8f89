"""Step time of a transformer by formula: passes of the slowest stage, bubble, exposed traffic, update. Pure.

Letters of the formulas: t tensor-parallel ranks, M micro-batches of a step, P pipeline ranks, tau tokens of a pass.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from gangline.fabric.traffic.order_paths import RingTraffic
from gangline.planner.cost.averaging import bucket_count, compression_work, messages, needs_shapes, shard_bytes
from gangline.planner.cost.exchange import LinkRates, num_steps, sent_bytes
from gangline.planner.cost.optimizer import (
    first_forward,
    matrix_updates,
    may_hide,
    published_updates,
    update_traffic,
)
from gangline.planner.formula.inputs import Question, formula_profile
from gangline.planner.formula.memory import Stages, token_costs
from gangline.planner.layouts.bubble import bubble_share
from gangline.planner.layouts.layout import Layout
from gangline.planner.layouts.schedules import num_stages
from gangline.planner.settings import GRADIENT_BYTES, PASS_BYTES, StepLoad, block_interval
from gangline.spec.forecast import UpdateTraffic
from gangline.spec.mesh import Mesh
from gangline.spec.profile import MatrixWork, ModelProfile, ParameterShape
from gangline.spec.transformer import Transformer


@dataclass(frozen=True, kw_only=True, slots=True)
class StepParts:
    """Seconds of one step of the slowest rank, by what they are spent on."""

    compute: float
    tensor: float
    """Tensor-parallel peers exchange what goes through each block."""
    context: float
    """Keys and values go round, as far as attention does not hide it."""
    experts: float
    """Rows go to experts and back."""
    stages: float
    """Pipeline stages hand on what they computed."""
    bubble: float
    """Stages wait for each other, or for the slowest."""
    exchange: float
    """Data-parallel ranks gather weights and reduce gradients, as far as computing does not hide it."""
    optimizer: float
    host: float = 0.0
    """Shards go to the device and their gradients come back."""

    @property
    def total(self) -> float:
        """Seconds of the whole step."""
        return (
            self.compute + self.tensor + self.context + self.experts + self.stages + self.bubble + self.exchange
            + self.optimizer + self.host
        )  # fmt: skip

    def largest_over(self, other: "StepParts") -> tuple[str, float]:
        """The part in which this step takes longest beyond `other`, and by how many seconds."""
        return max(
            ((name, getattr(self, name) - getattr(other, name)) for name in PART_WORDS), key=lambda each: each[1]
        )


PART_WORDS = {
    "compute": "computing", "tensor": "tp traffic", "context": "cp traffic", "experts": "expert traffic",
    "stages": "stage traffic", "bubble": "bubble", "exchange": "data-parallel traffic", "optimizer": "update",
    "host": "host traffic",
}  # fmt: skip
"""Parts in the order of a step, and their words in a reason."""


def passes(
    question: Question, layout: Layout, stages: Stages, *, micro_batch: int, micro_batches: int, recompute: str,
    waits: bool = True,
) -> StepParts:  # fmt: skip
    """Forward and backward of all micro-batches, without what data-parallel ranks exchange and the update; each message
    also `waits` its latency, or takes its bytes alone."""
    model, width, links = question.model, question.width_bytes, question.hardware.links
    links = links if waits else links.without_latency
    mesh, costs = layout.mesh, token_costs(model)
    again = 3 + 1 / block_interval(recompute)  # `selective` computes again what costs next to nothing
    tokens = micro_batch * model.sequence / mesh.cp
    work = tokens / (mesh.tp * question.hardware.flops_per_second)
    blocks = [
        again * costs.block_flops * work,
        _tensor_seconds(links, mesh, width * tokens * model.width, again=again),
        _context_seconds(links, mesh, width * model.key_width * tokens, hidden=3 * costs.attention_flops * work),
        _expert_seconds(links, mesh, model.active_experts * tokens * model.width * width, again=again),
    ]
    handed = 2 * width * tokens * model.width / mesh.tp if mesh.pp > 1 else 0.0
    handed_seconds = links.ring_seconds(handed, 2, steps=2, rank_stride=mesh.world_size // mesh.pp, peers=mesh.pp)
    sends = handed_seconds * num_stages(stages.schedule, 1)
    each, head = sum(blocks), 3 * costs.head_flops * work
    slow = max(
        range(stages.num_ranks), key=lambda rank: stages.rank_blocks[rank] * each + (rank == stages.head_rank) * head
    )
    count = stages.rank_blocks[slow]
    busy = count * each + (slow == stages.head_rank) * head + sends
    return StepParts(
        compute=micro_batches * (count * blocks[0] + (slow == stages.head_rank) * head),
        tensor=micro_batches * count * blocks[1],
        context=micro_batches * count * blocks[2],
        experts=micro_batches * count * blocks[3],
        stages=micro_batches * sends,
        bubble=_bubble_seconds(stages, micro_batches, busy, whole=sum(stages.blocks) * each + head, sends=sends),
        exchange=0.0,
        optimizer=0.0,
    )


def _bubble_seconds(stages: Stages, micro_batches: int, busy: float, *, whole: float, sends: float) -> float:
    """Waiting: of 1F1B and GPipe (M - 1) max t + sum t, less what the slowest rank works; of others by their share."""
    if stages.num_ranks == 1:
        return 0.0
    if len(stages.blocks) == stages.num_ranks:
        return whole + stages.num_ranks * sends - busy
    share = bubble_share(stages.schedule, stages.num_ranks, micro_batches)
    return micro_batches * busy * share / (1 - share)


def _tensor_seconds(links: LinkRates, mesh: Mesh, stream_bytes: float, *, again: float) -> float:
    """Two all-reduces forward and two backward in a block, two more where it is computed again."""
    times, size = 2 * (again - 1), sent_bytes("all_reduce", mesh.tp, stream_bytes)
    return times * links.ring_seconds(size, mesh.tp, steps=num_steps("all_reduce", mesh.tp))


def _context_seconds(links: LinkRates, mesh: Mesh, key_bytes: float, *, hidden: float) -> float:
    """Keys and as large values go round once forward and twice backward, behind attention as far as that takes."""
    sends = 3 * (mesh.cp - 1)
    size = sends * 2 * key_bytes / mesh.tp
    seconds = links.ring_seconds(size, 2 if mesh.cp > 1 else 1, steps=sends, rank_stride=mesh.tp, peers=mesh.cp)
    return max(0.0, seconds - hidden)


def _expert_seconds(links: LinkRates, mesh: Mesh, row_bytes: float, *, again: float) -> float:
    """Rows there and back, forward and backward, once more where the block is computed again; each forward pass also
    says how many rows, in messages without size."""
    times, size = 2 * (again - 1), sent_bytes("all_to_all", mesh.ep, row_bytes / mesh.tp)
    steps = (times + again - 2) * num_steps("all_to_all", mesh.ep)
    return links.ring_seconds(times * size, mesh.ep, steps=steps, rank_stride=mesh.tp)


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


def update_seconds(question: Question, layout: Layout, parameters: float) -> float:
    """The optimizer over what one rank updates, on its device or by its cores; whole matrices on the device alone, and
    what their owners exchange, one after the other."""
    hardware, optimizer, mesh = question.hardware, question.optimizer, layout.mesh
    sharing = mesh.dp_replicate if layout.wrapping.shares_optimizer else layout.shards
    rate = (hardware.host if question.space.on_host else hardware).memory_bytes_per_second
    streamed = optimizer.streamed_bytes(parameters / sharing) / rate
    products = optimizer.matrix_seconds(mesh, hardware.flops_per_second)
    collectives = matrix_updates(optimizer.matrix_work, mesh) if optimizer.matrix_work else ()
    return streamed + products + sum(
        hardware.links.ring_seconds(sent.wire_bytes, sent.ranks, steps=sent.steps, rank_stride=sent.rank_stride)
        for sent in collectives
    )  # fmt: skip


def late_updates(
    question: Question, layout: Layout, *, compute: float, exchange: float, micro_batches: int, recompute: str
) -> UpdateTraffic | None:
    """Updates of a step with so much computing and exchange; None: no updates travel during its next forward pass."""
    optimizer = question.optimizer
    work = optimizer.matrix_work
    if work is None or not work.overlaps or layout.replicas == 1:
        return None
    model, costs, hardware = question.model, token_costs(question.model), question.hardware
    blocks = model.layers * costs.block_flops
    first = first_forward(compute, micro_batches, 1 + 1 / block_interval(recompute) / 3)
    forward = first * blocks / (blocks + costs.head_flops) if may_hide(work, layout.wrapping, "cuda") else 0.0
    return update_traffic(
        published_updates(work, layout.mesh), work,
        lambda collective: hardware.links.ring_seconds(
            collective.wire_bytes / collective.count, collective.ranks,
            steps=collective.steps / collective.count, rank_stride=collective.rank_stride,
        ),
        forward_seconds=forward, computed=compute, exchanged=exchange, overlap=hardware.overlap,
    )  # fmt: skip


def step_flops(model: Transformer, global_batch: int) -> float:
    """Operations of forward and backward on `global_batch` samples, nothing computed twice."""
    costs = token_costs(model)
    return global_batch * model.sequence * 3 * (model.layers * costs.block_flops + costs.head_flops)


def step_bound_seconds(question: Question) -> float:
    """No step takes less: all its work, shared evenly over all GPUs that do nothing else."""
    space = question.space
    return step_flops(question.model, space.global_batch) / (space.world_size * question.hardware.flops_per_second)
