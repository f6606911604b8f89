"""Step time of a transformer by formula: passes of the slowest stage, bubble, exposed traffic, update. Pure.

Letters of the formulas: t tensor-parallel ranks, M micro-batches of a step, P pipeline ranks, tau tokens of a pass.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from gangline.planner.cost.exchange import LinkRates, num_steps, sent_bytes
from gangline.planner.cost.optimizer import (
    first_forward,
    matrix_updates,
    may_hide,
    published_updates,
    update_traffic,
    what_hides,
)
from gangline.planner.formula.memory import StageLoad, stage_blocks, stage_parameters, token_costs
from gangline.planner.formula.question import Question
from gangline.planner.layouts.bubble import bubble_share, most_live
from gangline.planner.layouts.layout import Layout
from gangline.planner.layouts.schedules import num_stages, owner_of
from gangline.planner.settings import block_interval
from gangline.spec.forecast import UpdateTraffic
from gangline.spec.mesh import Mesh
from gangline.spec.plan import PipelineSchedule
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


@dataclass(frozen=True, kw_only=True, slots=True)
class Stages:
    """How the blocks of a model lie on pipeline ranks under one schedule."""

    schedule: PipelineSchedule
    blocks: tuple[int, ...]
    """Blocks of each stage."""
    rank_blocks: tuple[int, ...]
    """Blocks of each rank."""
    rank_parameters: tuple[int, ...]
    head_rank: int

    @property
    def num_ranks(self) -> int:
        """Ranks of the pipeline."""
        return len(self.rank_blocks)

    def loads(self, micro_batches: int) -> list[StageLoad]:
        """Loads of the ranks that can be the fullest: the first, which keeps most, and the one with the head.

        Any other has at most the blocks of the first, keeps no more of them and holds no embedding.
        """
        return [
            StageLoad(
                blocks=self.rank_blocks[rank],
                parameters=self.rank_parameters[rank],
                has_head=rank == self.head_rank,
                live=most_live(self.schedule, self.num_ranks, rank, micro_batches),
            )
            for rank in sorted({0, self.head_rank, self.num_ranks - 1})
        ]


@lru_cache(maxsize=4096)
def stages_of(model: Transformer, ranks: int, schedule: PipelineSchedule) -> Stages:
    """The division of `model` that makes the slowest stage as fast as can be."""
    blocks = stage_blocks(model.layers, num_stages(schedule, ranks), token_costs(model).head_blocks)
    parameters = stage_parameters(model, blocks)
    owners = [owner_of(schedule, ranks, stage) for stage in range(len(blocks))]
    return Stages(
        schedule=schedule,
        blocks=blocks,
        rank_blocks=_by_rank(blocks, owners, ranks),
        rank_parameters=_by_rank(parameters, owners, ranks),
        head_rank=owners[-1],
    )


def _by_rank(values: Sequence[int], owners: Sequence[int], ranks: int) -> tuple[int, ...]:
    found = [0] * ranks
    for value, owner in zip(values, owners, strict=True):
        found[owner] += value
    return tuple(found)


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


def update_seconds(question: Question, layout: Layout, parameters: float) -> float:
    """The optimizer over what one rank updates, on its device or by its cores; whole matrices on the device alone, and
    what their owners exchange, one after the other."""
    hardware, optimizer, owners = question.hardware, question.optimizer, question.optimizer.owners(layout.mesh)
    sharing = layout.mesh.dp_replicate if layout.wrapping.shares_optimizer else layout.shards
    rate = (hardware.host if question.space.on_host else hardware).memory_bytes_per_second
    streamed = optimizer.streamed_bytes(parameters / sharing) / rate
    products = optimizer.matrix_seconds(layout.mesh.pp * owners, hardware.flops_per_second)
    messages = matrix_updates(optimizer.matrix_work, layout.mesh, owners=owners) if optimizer.matrix_work else ()
    return streamed + products + sum(
        hardware.links.ring_seconds(each.wire_bytes, each.ranks, steps=each.steps, rank_stride=each.rank_stride)
        for each in messages
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
        published_updates(work, layout.mesh, owners=optimizer.owners(layout.mesh)), work,
        lambda each: hardware.links.ring_seconds(
            each.wire_bytes / each.count, each.ranks, steps=each.steps / each.count, rank_stride=each.rank_stride
        ),
        forward_seconds=forward,
        hides=what_hides(forward, computed=compute, exchanged=exchange, overlap=hardware.overlap),
    )  # fmt: skip


def step_flops(model: Transformer, global_batch: int) -> float:
    """Operations of forward and backward on `global_batch` samples, nothing computed twice."""
    costs = token_costs(model)
    return global_batch * model.sequence * 3 * (model.layers * costs.block_flops + costs.head_flops)


def step_bound_seconds(question: Question) -> float:
    """No step takes less: all its work, shared evenly over all GPUs that do nothing else."""
    space = question.space
    return step_flops(question.model, space.global_batch) / (space.world_size * question.hardware.flops_per_second)
