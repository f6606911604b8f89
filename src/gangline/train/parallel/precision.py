"""What a precision word means for each wrapper: one table. Parameters and optimizer state stay fp32."""

from contextlib import AbstractContextManager, nullcontext

import torch
from torch.amp.grad_scaler import GradScaler
from torch.distributed.fsdp import MixedPrecisionPolicy

from gangline.spec.plan import Precision
from gangline.train.parallel.scaler import GangScaler

COMPUTE: dict[Precision, torch.dtype] = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def shard_policy(precision: Precision, *, is_root: bool, reduce: torch.dtype = torch.float32) -> MixedPrecisionPolicy:
    """For `fully_shard`: gathers and computes in `precision`, averages in `reduce`; the root hands out fp32."""
    if precision == "fp32":
        return MixedPrecisionPolicy(reduce_dtype=reduce)
    output = torch.float32 if is_root else None
    return MixedPrecisionPolicy(param_dtype=COMPUTE[precision], reduce_dtype=reduce, output_dtype=output)


def autocast(precision: Precision, device: torch.device, *, sharded: bool) -> AbstractContextManager[object]:
    """Around forward and loss; FSDP casts by itself."""
    if precision == "fp32" or sharded:
        return nullcontext()
    return torch.autocast(device.type, COMPUTE[precision])


def grad_scaler(precision: Precision, device: torch.device) -> GradScaler:
    """Loss scaling for fp16; does nothing otherwise."""
    scaler = GangScaler(device.type, enabled=precision == "fp16")
    scaler.scale(torch.zeros((), device=device))  # gives it a scale on ranks that never see a loss, too
    return scaler
