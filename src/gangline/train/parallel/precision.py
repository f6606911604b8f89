"""Precisions for every wrapper, in one table, and loss scaling of fp16 for sharded gradients.

Parameters and optimizer state stay fp32.
"""

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext

import torch
import torch.distributed as dist
from torch import Tensor
from torch.amp.grad_scaler import GradScaler
from torch.distributed.fsdp import MixedPrecisionPolicy
from torch.distributed.tensor import DTensor

from gangline.spec.plan import Precision


class GangScaler(GradScaler):
    """Unscales every rank's own shards; after an overflow on any rank no rank of the gang takes the step."""

    def _unscale_grads_(
        self, optimizer: torch.optim.Optimizer, inv_scale: Tensor, found_inf: Tensor, allow_fp16: bool
    ) -> dict[torch.device, Tensor]:
        del allow_fp16  # gradients have the dtype of their parameters: fp32
        grads = [each.grad for group in optimizer.param_groups for each in group["params"] if each.grad is not None]
        for pieces in _alike([grad.to_local() if isinstance(grad, DTensor) else grad for grad in grads]):
            here = torch.zeros_like(found_inf, device=pieces[0].device)
            torch._amp_foreach_non_finite_check_and_unscale_(pieces, here, inv_scale.to(here.device))
            found_inf += here.to(found_inf.device)
        if dist.is_initialized() and dist.get_world_size() > 1:
            dist.all_reduce(found_inf, dist.ReduceOp.MAX)
        return {found_inf.device: found_inf}


def _alike(tensors: Sequence[Tensor]) -> Iterable[list[Tensor]]:
    """Group by device and dtype."""
    found: dict[tuple[torch.device, torch.dtype], list[Tensor]] = {}
    for tensor in tensors:
        found.setdefault((tensor.device, tensor.dtype), []).append(tensor)
    return found.values()


COMPUTE: dict[Precision, torch.dtype] = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def shard_policy(precision: Precision, *, is_root: bool, reduce: torch.dtype = torch.float32) -> MixedPrecisionPolicy:
    """Policy of `fully_shard`: gathers and computes in `precision`, averages in `reduce`; the root returns fp32."""
    if precision == "fp32":
        return MixedPrecisionPolicy(reduce_dtype=reduce)
    output = torch.float32 if is_root else None
    return MixedPrecisionPolicy(param_dtype=COMPUTE[precision], reduce_dtype=reduce, output_dtype=output)


def autocast(precision: Precision, device: torch.device, *, sharded: bool) -> AbstractContextManager[object]:
    """Context of forward and loss; FSDP casts by itself."""
    if precision == "fp32" or sharded:
        return nullcontext()
    return torch.autocast(device.type, COMPUTE[precision])


def grad_scaler(precision: Precision, device: torch.device) -> GradScaler:
    """Loss scaling for fp16; does nothing otherwise."""
    scaler = GangScaler(device.type, enabled=precision == "fp16")
    scaler.scale(torch.zeros((), device=device))  # creates its scale, also on ranks without a loss
    return scaler
