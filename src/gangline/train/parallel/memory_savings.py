"""Memory savings of a block: recomputed activations; shards and activations offloaded to the host."""

from functools import partial, wraps
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.distributed.fsdp import CPUOffloadPolicy, OffloadPolicy
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
"""Operators whose results `selective` keeps: they take most of the time; the rest is cheap to recompute."""


def recompute(block: nn.Module, number: int, policy: str) -> None:
    """Recompute activations of block `number` (from 0) of a model as `policy` says, in place.

    Args:
        block: Its `forward` is replaced.
        number: Which of the model's blocks it is.
        policy: `none`; `full`: everything is recomputed; `selective`: everything but matrix products and attention;
            `every_N`: `full` for every N-th block, from the first.
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
    """Refuse a policy that would recompute nothing.

    Raises:
        ConfigError: `model` has no blocks.
    """
    if policy != "none" and not num_blocks:
        raise ConfigError(
            f"train.memory.activation_checkpointing {policy}: wanted blocks to recompute, {type(model).__name__} has "
            'no ModuleList and the hints name none; set ParallelHints(blocks="<pattern>"), or none'
        )


def _keep(context: Any, operator: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
    del context, args, kwargs
    return CheckpointPolicy.MUST_SAVE if operator.name() in KEPT else CheckpointPolicy.PREFER_RECOMPUTE


def shard_offload(*, to_host: bool, device: torch.device) -> OffloadPolicy:
    """Policy of `fully_shard`: shards, gradients and with them the optimizer on the host, or all of it on the device.

    Host memory is pinned only with an accelerator, because torch fails without one.
    """
    return CPUOffloadPolicy(pin_memory=device.type == "cuda") if to_host else OffloadPolicy()


def keep_on_host(block: nn.Module) -> None:
    """Offload what `block` saves for its backward pass to the host, in place; parameters stay on the device."""
    inner = block.forward

    @wraps(inner)
    def forward(*args: Any, **kwargs: Any) -> Any:
        with saved_tensors_hooks(_to_host, _from_host):
            return inner(*args, **kwargs)

    block.forward = forward


def is_activation(saved: Tensor) -> bool:
    """Whether it is neither a parameter nor a view of one."""
    base = saved._base if saved._base is not None else saved  # noqa: SLF001  # torch has no other name for it
    return not isinstance(base, nn.Parameter)


def _to_host(saved: Tensor) -> tuple[torch.device, Tensor]:
    if saved.device.type == "cpu" or not is_activation(saved):
        return saved.device, saved
    host = torch.empty(saved.shape, dtype=saved.dtype, pin_memory=True)
    return saved.device, host.copy_(saved, non_blocking=True)


def _from_host(packed: tuple[torch.device, Tensor]) -> Tensor:
    device, saved = packed
    return saved.to(device, non_blocking=True)
