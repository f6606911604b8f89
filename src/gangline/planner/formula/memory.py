"""Work and bytes of a transformer's blocks, the blocks of each stage, and memory of one rank by formula. Pure.

Letters of the formulas: h width, a heads, g heads that are asked, d width of a head, f width of feed-forward, V
vocabulary, s sequence.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import ceil, floor

from gangline.errors import ConfigError
from gangline.planner.cost.memory import RankMemory, block_bytes
from gangline.planner.cost.optimizer import OptimizerModel
from gangline.planner.formula.inputs import Question
from gangline.planner.layouts.bubble import most_live
from gangline.planner.layouts.enumerate import Sync
from gangline.planner.layouts.layout import Layout
from gangline.planner.layouts.schedules import num_stages, owner_of
from gangline.planner.settings import GRADIENT_BYTES, WEIGHT_BYTES, block_interval
from gangline.spec.plan import PipelineSchedule
from gangline.spec.transformer import Transformer

LOGIT_BYTES = 14
"""Bytes of one logit at its peak: itself in 16 bits; in 32 bits a copy, the log-softmax and its gradient."""

_EPSILON = 1e-9


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenCosts:
    """Costs of one token in one block, and in the head; with the parameters of a block."""

    block_flops: float
    """Forward: 2 (P_b - norms) + 4 a d s / 2, the masked half of causal attention left out; of experts those that a
    token goes through."""
    attention_flops: float
    """Operations of the scores among them and what they weigh: 4 a d s / 2."""
    head_flops: float
    """Forward: 2 V h."""
    block_parameters: int
    """Parameters of one block; `expert_parameters` are those of its experts."""
    expert_parameters: int
    kept_bytes: dict[str, float]
    """Bytes from forward to backward in 16 bits, by what is recomputed: `none`, `selective` (outputs of matrices and of
    attention are kept), `full` (what enters the block)."""

    def kept(self, recompute: str) -> float:
        """Bytes from forward to backward; `every_N` keeps of one block in N only what enters it."""
        if recompute in self.kept_bytes:
            return self.kept_bytes[recompute]
        whole, entering = self.kept_bytes["none"], self.kept_bytes["full"]
        return whole - (whole - entering) / block_interval(recompute)

    @property
    def head_blocks(self) -> float:
        """Blocks that take as long as the head."""
        return self.head_flops / self.block_flops


@lru_cache(maxsize=64)
def token_costs(model: Transformer) -> TokenCosts:
    """Costs of a token of `model`.

    Source:
        Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models" (2022), arXiv 2205.05198,
        for a plain block without grouped heads: 8h + 4h + 4h + 4 (4h) = 32 h bytes, 34 h with the masks of dropout.
    """
    h, queries, keys = model.width, model.query_width, model.key_width
    active = model.active_experts * model.expert_parameters
    attention = 4 * queries * model.sequence / 2
    fed = model.active_experts * model.feed_width
    whole, outputs = (8, 4) if model.gated else (4, 2)
    return TokenCosts(
        block_flops=2 * (model.attention_parameters + active + model.router_parameters) + attention,
        attention_flops=attention,
        head_flops=2 * model.embedding_parameters,
        block_parameters=model.block_parameters,
        expert_parameters=model.experts * model.expert_parameters if model.experts > 1 else 0,
        kept_bytes={
            "none": 8 * h + 4 * queries + 4 * keys + whole * fed,
            "selective": 6 * h + 4 * queries + 4 * keys + outputs * fed,
            "full": 2 * h,
        },
    )


@lru_cache(maxsize=4096)
def stage_blocks(layers: int, stages: int, head_blocks: float) -> tuple[int, ...]:
    """Blocks of each stage, at least one each, so that the slowest stage is as fast as can be.

    Of divisions that are equally slow the one with the most blocks in early stages, which leaves the last stage, that
    has the head, which takes as long as `head_blocks`, the least to do.

    Raises:
        ConfigError: There are more stages than blocks.
    """
    if stages > layers:
        raise ConfigError(f"a pipeline of {stages} stages wants {stages} blocks or more, found {layers}")
    even, most_early = (layers + head_blocks) / stages, layers - stages + 1  # early stages gain what the last one loses
    slowest = min(
        _slowest(layers, stages, head_blocks, max(1, min(early, most_early))) for early in (floor(even), ceil(even))
    )
    most = floor(slowest + _EPSILON)
    blocks: list[int] = []
    for stage in range(stages - 1):
        left = layers - sum(blocks) - (stages - 1 - stage)
        blocks.append(min(most, left))
    return (*blocks, layers - sum(blocks))


def _slowest(layers: int, stages: int, head_blocks: float, early: int) -> float:
    """Blocks' worth of the slowest stage, where no early one has more than `early`."""
    last = max(1, layers - early * (stages - 1))
    return max(early if stages > 1 else 0, last + head_blocks)


def stage_parameters(model: Transformer, blocks: Sequence[int]) -> tuple[int, ...]:
    """Parameters of each stage; the head of tied weights is a copy where another stage has the embedding."""
    found = [count * model.block_parameters for count in blocks]
    found[0] += model.embedding_parameters
    found[-1] += model.width
    if len(blocks) > 1 or not model.tied:
        found[-1] += model.embedding_parameters
    return tuple(found)


@dataclass(frozen=True, kw_only=True, slots=True)
class StageLoad:
    """What one pipeline rank holds of a model."""

    blocks: int
    parameters: float
    """Parameters of its stages, before tp cuts them."""
    has_head: bool
    live: float
    """Micro-batches whose activations it keeps at once, each of all its stages."""


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


def held_sync(sync: Sync, micro_batches: int) -> Sync:
    """When gradients are reduced: those of a single micro-batch at once, whatever `sync` says."""
    return "each" if micro_batches == 1 else sync


def state_memory(question: Question, layout: Layout, parameters: float, *, sync: Sync) -> tuple[float, float, float]:
    """Weights, gradients and optimizer of a rank whose stages have `parameters` after tp has cut them.

    Owners of matrices share what the optimizer keeps of them evenly. On the host wait shards and their optimizer, but
    no gradients that are not reduced yet. Reduced after each micro-batch, gradients are in shards all the time.
    """
    optimizer, width_bytes = question.optimizer, question.width_bytes
    shards, owned = layout.shards, optimizer.owned_bytes(layout.mesh)
    cast = width_bytes if width_bytes < WEIGHT_BYTES else 0
    if not layout.wrapping.shards:
        sharing = layout.mesh.dp_replicate if layout.wrapping.shares_optimizer else 1
        return (
            (WEIGHT_BYTES + cast) * parameters,
            GRADIENT_BYTES * parameters,
            optimizer.moment_bytes * parameters / sharing + owned,
        )
    gathered = width_bytes * parameters if not layout.wrapping.reshards else 0.0
    if question.space.on_host:
        return gathered, GRADIENT_BYTES * parameters if sync == "last" else 0.0, 0.0
    reduced = shards if sync == "each" else 1
    return (
        WEIGHT_BYTES * parameters / shards + gathered,
        GRADIENT_BYTES * parameters / reduced,
        optimizer.moment_bytes * parameters / shards + owned,
    )


def host_memory(layout: Layout, parameters: float, optimizer: OptimizerModel) -> float:
    """Shards of one rank, their gradients, optimizer and updates, which are in the memory of its server."""
    kept = WEIGHT_BYTES + GRADIENT_BYTES + optimizer.moment_bytes
    own = kept * parameters / layout.shards
    return own + optimizer.owned_bytes(layout.mesh) + optimizer.update_bytes(layout.mesh)


def activation_memory(
    question: Question, layout: Layout, load: StageLoad, *, micro_batch: int, recompute: str, loss_chunks: int
) -> tuple[float, float]:
    """Activations and buffers of a rank."""
    model, width = question.model, question.width_bytes
    mesh, costs = layout.mesh, token_costs(model)
    tokens = micro_batch * model.sequence / mesh.cp / mesh.tp
    kept = costs.kept(recompute) * (width / 2) * load.live * load.blocks * tokens
    logits = LOGIT_BYTES * tokens * model.vocabulary / loss_chunks if load.has_head else 0.0
    again = costs.kept_bytes["none"] * (width / 2) * tokens if recompute != "none" else 0.0
    block = (costs.block_parameters - costs.expert_parameters * (1 - 1 / mesh.ep)) / mesh.tp
    return kept, max(logits, again + block_bytes(layout.wrapping, width) * block)


def rank_memory(
    question: Question, layout: Layout, load: StageLoad, *, sync: Sync, micro_batch: int, recompute: str,
    loss_chunks: int,
) -> RankMemory:  # fmt: skip
    """All of one rank, by cause."""
    weights, gradients, kept = state_memory(question, layout, load.parameters / layout.mesh.tp, sync=sync)
    activations, buffers = activation_memory(
        question, layout, load, micro_batch=micro_batch, recompute=recompute, loss_chunks=loss_chunks
    )
    updates = 0.0 if question.space.on_host else question.optimizer.update_bytes(layout.mesh)
    return RankMemory(
        weights=weights, gradients=gradients, optimizer=kept, activations=activations, buffers=buffers,
        updates=max(0.0, updates - activations - buffers),
    )  # fmt: skip


def memory_bound_bytes(question: Question) -> float:
    """No rank holds less: its share of the state, a block in 16 bits, and one piece of the logits of a sample; the last
    two cut by the largest degrees of the space."""
    model, space, optimizer = question.model, question.space, question.optimizer
    state = (WEIGHT_BYTES + GRADIENT_BYTES + optimizer.moment_bytes) * model.parameters + optimizer.owner_bytes
    cut = max(space.tp) * max(space.cp)
    logits = LOGIT_BYTES * model.sequence * model.vocabulary / max(space.loss_chunks) / cut
    kept = token_costs(model).kept_bytes["full"] * model.sequence / cut
    return state / space.world_size + max(logits if max(space.pp) == 1 else 0.0, kept)
