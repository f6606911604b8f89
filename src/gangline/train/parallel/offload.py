"""What waits on the host while the device needs its memory: shards between their uses, and activations."""

from functools import wraps
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.distributed.fsdp import CPUOffloadPolicy, OffloadPolicy


def shard_offload(*, to_host: bool, device: torch.device) -> OffloadPolicy:
    """For `fully_shard`: shards, gradients and with them the optimizer on the host, or all of it on the device.

    Pinned memory is an accelerator's: asking for it without one fails.
    """
    return CPUOffloadPolicy(pin_memory=device.type == "cuda") if to_host else OffloadPolicy()


def keep_on_host(block: nn.Module) -> None:
    """Have what `block` keeps for its backward pass wait on the host, in place; parameters stay where they are."""
    inner = block.forward

    @wraps(inner)
    def forward(*args: Any, **kwargs: Any) -> Any:
        with saved_tensors_hooks(_to_host, _from_host):
            return inner(*args, **kwargs)

    block.forward = forward


def is_activation(saved: Tensor) -> bool:
    """It is no parameter and no view of one."""
    base = saved._base if saved._base is not None else saved  # noqa: SLF001  # torch has no other name for it
    return not isinstance(base, nn.Parameter)


def _to_host(saved: Tensor) -> tuple[torch.device, Tensor]:
    if saved.device.type == "cpu" or not is_activation(saved):
        return saved.device, saved
    host = torch.empty(saved.shape, dtype=saved.dtype, pin_memory=True)
    return saved.device, host.copy_(saved, non_blocking=True)


def _from_host(packed: tuple[torch.device, Tensor]) -> Tensor:
    device, kept = packed
    return kept.to(device, non_blocking=True)
