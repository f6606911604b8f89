"""Activations that are computed again in the backward pass instead of being kept, block by block.

Knows the words of `train.memory.activation_checkpointing`. Blocks stay what they are: no module is put around them, so
names, hooks and whatever is wrapped around later see nothing. Random numbers are drawn alike in both passes.
"""

from functools import partial, wraps
from typing import Any

from torch import nn
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts, noop_context_fn

from gangline.errors import ConfigError

KEPT: frozenset[str] = frozenset({
    "aten::mm",
    "aten::addmm",
    "aten::bmm",
    "aten::baddbmm",
    "aten::convolution",
    "aten::_scaled_dot_product_flash_attention_for_cpu",
    "aten::_scaled_dot_product_flash_attention",
    "aten::_scaled_dot_product_efficient_attention",
    "aten::_scaled_dot_product_cudnn_attention",
})  # fmt: skip
"""Operators whose results `selective` keeps: they take most of the time; all else is cheap to compute again."""


def recompute(block: nn.Module, number: int, policy: str) -> None:
    """Have block `number` (from 0) of a model keep what `policy` says, in place.

    Args:
        block: Its `forward` is replaced by one that keeps its inputs and little else.
        number: Which of the model's blocks it is.
        policy: `none`; `full`: nothing is kept; `selective`: results of matrix products and attention; `every_N`: every
            N-th block, from the first, keeps nothing.
    """
    if policy == "none" or (policy.startswith("every_") and number % int(policy.removeprefix("every_"))):
        return
    contexts = partial(create_selective_checkpoint_contexts, _keep) if policy == "selective" else noop_context_fn
    inner = block.forward

    @wraps(inner)
    def forward(*args: Any, **kwargs: Any) -> Any:
        return checkpoint(inner, *args, use_reentrant=False, context_fn=contexts, **kwargs)

    block.forward = forward


def require_blocks(num_blocks: int, policy: str, model: nn.Module) -> None:
    """Refuse to recompute nothing in silence.

    Raises:
        ConfigError: `model` has no blocks.
    """
    if policy != "none" and not num_blocks:
        raise ConfigError(
            f"train.memory.activation_checkpointing {policy}: wanted blocks to recompute, {type(model).__name__} has "
            'no ModuleList and the hints name none; give ParallelHints(blocks="<pattern>") or take none'
        )


def _keep(context: Any, operator: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
    del context, args, kwargs
    return CheckpointPolicy.MUST_SAVE if operator.name() in KEPT else CheckpointPolicy.PREFER_RECOMPUTE
