"""Work and bytes of a transformer's blocks by formula, and the blocks of each pipeline stage. Pure.

Letters of the formulas: h width, a heads, g heads that are asked, d width of a head, f width of feed-forward, V
vocabulary, s sequence.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import ceil, floor

from gangline.errors import ConfigError
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
        return whole - (whole - entering) / int(recompute.removeprefix("every_"))

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
    has the head, the least to do.

    Args:
        layers: Blocks of the model.
        stages: Of all ranks together.
        head_blocks: Blocks that take as long as the head, which the last stage has besides.

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


def recomputed_share(recompute: str) -> float:
    """Share of the blocks' forward passes that is done once more: of `selective` only what costs next to nothing."""
    known = {"none": 0.0, "selective": 0.0, "full": 1.0}
    return known[recompute] if recompute in known else 1 / int(recompute.removeprefix("every_"))


def stage_parameters(model: Transformer, blocks: Sequence[int]) -> tuple[int, ...]:
    """Parameters of each stage; the head of tied weights is a copy where another stage has the embedding."""
    found = [count * model.block_parameters for count in blocks]
    found[0] += model.embedding_parameters
    found[-1] += model.width
    if len(blocks) > 1 or not model.tied:
        found[-1] += model.embedding_parameters
    return tuple(found)
