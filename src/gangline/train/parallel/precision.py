"""What a precision word means for each wrapper: one table. Parameters, optimizer state and reduction stay fp32."""

from contextlib import AbstractContextManager, nullcontext

import torch
from torch.amp.grad_scaler import GradScaler
from torch.distributed.fsdp import MixedPrecisionPolicy

from gangline.spec.plan import Precision

COMPUTE: dict[Precision, torch.dtype] = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def shard_policy(precision: Precision, *, is_root: bool) -> MixedPrecisionPolicy:
    """For `fully_shard`: gathers and computes in `precision`, reduces in fp32; the root hands out fp32."""
    if precision == "fp32":
        return MixedPrecisionPolicy(reduce_dtype=torch.float32)
    output = torch.float32 if is_root else None
    return MixedPrecisionPolicy(param_dtype=COMPUTE[precision], reduce_dtype=torch.float32, output_dtype=output)


def autocast(precision: Precision, device: torch.device, *, sharded: bool) -> AbstractContextManager[object]:
    """Around forward and loss; FSDP casts by itself."""
    if precision == "fp32" or sharded:
        return nullcontext()
    return torch.autocast(device.type, COMPUTE[precision])


def grad_scaler(precision: Precision, device: torch.device) -> GradScaler:
    """Loss scaling for fp16; does nothing otherwise."""
    return GradScaler(device.type, enabled=precision == "fp16")
