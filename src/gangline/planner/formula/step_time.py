"""Step time of a transformer by formula: passes of the slowest stage, bubble, exposed traffic, update. Pure.

Letters of the formulas: t tensor-parallel ranks, M micro-batches of a step, P pipeline ranks, tau tokens of a pass.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from gangline.planner.cost.exchange import LinkRates, num_steps, sent_bytes
from gangline.planner.cost.optimizer import (
    ADAMW,
    OptimizerModel,
    first_forward,
    matrix_updates,
    may_hide,
    published_updates,
    update_traffic,
    what_hides,
)
from gangline.planner.cost.speeds import HostRates, transfer_seconds
from gangline.planner.formula.memory import StageLoad, recomputed_share, stage_blocks, stage_parameters, token_costs
from gangline.planner.layouts.bubble import bubble_share, most_live
from gangline.planner.layouts.enumerate import SearchSpace, Sync
from gangline.planner.layouts.layout import Layout
from gangline.planner.layouts.schedules import num_stages, owner_of
from gangline.planner.settings import PASS_BYTES
from gangline.spec.forecast import UpdateTraffic
from gangline.spec.plan import PipelineSchedule, Precision
from gangline.spec.transformer import Transformer


@dataclass(frozen=True, kw_only=True, slots=True)
class Hardware:
    """What one GPU and its links deliver."""

    flops_per_second: float
    memory_bytes_per_second: float
    links: LinkRates
    overlap: float = 0.0
    """Share of computing that hides the exchanges of data-parallel ranks."""
    host: HostRates = HostRates()

    @property
    def without_latency(self) -> "Hardware":
        """The same, as if messages took their bytes alone; itself where they do."""
        links = self.links.without_latency
        return self if links is self.links else replace(self, links=links)


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
    model: Transformer, layout: Layout, stages: Stages, hardware: Hardware, *, micro_batch: int,
    micro_batches: int, recompute: str, precision: Precision = "bf16",
) -> StepParts:  # fmt: skip
    """Forward and backward of all micro-batches, without what data-parallel ranks exchange and the update."""
    width = PASS_BYTES[precision]
    mesh, costs = layout.mesh, token_costs(model)
    again = 3 + recomputed_share(recompute)
    tokens = micro_batch * model.sequence / mesh.cp
    work = tokens / (mesh.tp * hardware.flops_per_second)
    blocks = [
        again * costs.block_flops * work,
        _tensor_seconds(model, layout, hardware, tokens=tokens, width=width, again=again),
        _context_seconds(model, layout, hardware, tokens=tokens, width=width, hidden=3 * costs.attention_flops * work),
        _expert_seconds(model, layout, hardware, tokens=tokens, width=width, again=again),
    ]
    handed = 2 * width * tokens * model.width / mesh.tp if mesh.pp > 1 else 0.0
    handed_seconds = hardware.links.ring_seconds(
        handed, 2, steps=2, rank_stride=mesh.world_size // mesh.pp, peers=mesh.pp
    )
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


def _tensor_seconds(
    model: Transformer, layout: Layout, hardware: Hardware, *, tokens: float, width: int, again: float
) -> float:
    """Two all-reduces forward and two backward in a block, two more where it is computed again."""
    peers = layout.mesh.tp
    times, size = 2 * (again - 1), sent_bytes("all_reduce", peers, width * tokens * model.width)
    return times * hardware.links.ring_seconds(size, peers, steps=num_steps("all_reduce", peers))


def _context_seconds(
    model: Transformer, layout: Layout, hardware: Hardware, *, tokens: float, width: int, hidden: float
) -> float:
    """Keys and values go round once forward and twice backward, behind attention as far as that takes."""
    mesh = layout.mesh
    sends = 3 * (mesh.cp - 1)
    size = sends * 2 * width * model.key_width * tokens / mesh.tp
    seconds = hardware.links.ring_seconds(
        size, 2 if mesh.cp > 1 else 1, steps=sends, rank_stride=mesh.tp, peers=mesh.cp
    )
    return max(0.0, seconds - hidden)


def _expert_seconds(
    model: Transformer, layout: Layout, hardware: Hardware, *, tokens: float, width: int, again: float
) -> float:
    """Rows there and back, forward and backward, once more where the block is computed again; each forward pass also
    says how many rows, in messages without size."""
    mesh, times = layout.mesh, 2 * (again - 1)
    size = sent_bytes("all_to_all", mesh.ep, model.active_experts * tokens * model.width * width / mesh.tp)
    steps = (times + again - 2) * num_steps("all_to_all", mesh.ep)
    return hardware.links.ring_seconds(times * size, mesh.ep, steps=steps, rank_stride=mesh.tp)


def update_seconds(
    layout: Layout, parameters: float, hardware: Hardware, *, optimizer: OptimizerModel = ADAMW,
    on_host: bool = False,
) -> float:  # fmt: skip
    """The optimizer over what one rank updates, on its device or by its cores; whole matrices on the device alone."""
    sharing = layout.mesh.dp_replicate if layout.wrapping.shares_optimizer else layout.shards
    rate = hardware.host.memory_bytes_per_second if on_host else hardware.memory_bytes_per_second
    streamed = optimizer.streamed_bytes(parameters / sharing) / rate
    products = optimizer.matrix_seconds(layout.mesh.pp * optimizer.owners(layout.mesh), hardware.flops_per_second)
    return streamed + products + _matrix_seconds(layout, hardware, optimizer)


def _matrix_seconds(layout: Layout, hardware: Hardware, optimizer: OptimizerModel) -> float:
    """What owners exchange, one after the other."""
    if optimizer.matrix_work is None:
        return 0.0
    return sum(
        hardware.links.ring_seconds(each.wire_bytes, each.ranks, steps=each.steps, rank_stride=each.rank_stride)
        for each in matrix_updates(optimizer.matrix_work, layout.mesh, owners=optimizer.owners(layout.mesh))
    )


def late_updates(
    model: Transformer, layout: Layout, hardware: Hardware, optimizer: OptimizerModel, *, compute: float,
    exchange: float, micro_batches: int, recompute: str,
) -> UpdateTraffic | None:  # fmt: skip
    """Updates of a step with so much computing and exchange; None: no updates travel during its next forward pass."""
    work, costs = optimizer.matrix_work, token_costs(model)
    if work is None or not work.overlaps or layout.replicas == 1:
        return None
    blocks = model.layers * costs.block_flops
    first = first_forward(compute, micro_batches, 1 + recomputed_share(recompute) / 3)
    forward = first * blocks / (blocks + costs.head_flops) if may_hide(work, layout.wrapping, "cuda") else 0.0
    return update_traffic(
        published_updates(work, layout.mesh, owners=optimizer.owners(layout.mesh)), work,
        lambda each: hardware.links.ring_seconds(
            each.wire_bytes / each.count, each.ranks, steps=each.steps / each.count, rank_stride=each.rank_stride
        ),
        forward_seconds=forward,
        hides=what_hides(forward, computed=compute, exchanged=exchange, overlap=hardware.overlap),
    )  # fmt: skip


def host_seconds(layout: Layout, parameters: float, hardware: Hardware, *, sync: Sync, micro_batches: int) -> float:
    """What shards on the host send to the device before they are gathered, and their gradients back."""
    return transfer_seconds(
        parameters / layout.shards, hardware.host, reshards=layout.wrapping.reshards, sync=sync,
        micro_batches=micro_batches,
    )  # fmt: skip


def step_flops(model: Transformer, global_batch: int) -> float:
    """Operations of forward and backward on `global_batch` samples, nothing computed twice."""
    costs = token_costs(model)
    return global_batch * model.sequence * 3 * (model.layers * costs.block_flops + costs.head_flops)


def step_bound_seconds(model: Transformer, space: SearchSpace, hardware: Hardware) -> float:
    """No step takes less: all its work, shared evenly over all GPUs that do nothing else."""
    return step_flops(model, space.global_batch) / (space.world_size * hardware.flops_per_second)
