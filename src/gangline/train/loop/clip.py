"""The global gradient norm, whatever the sharding, and clipping by it."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.nn.utils import clip_grads_with_norm_, get_total_norm


def global_norm(parameters: Sequence[Tensor]) -> Tensor:
    """Euclidean norm of all gradients, equal on all ranks; collective where gradients are sharded."""
    grads = [each.grad for each in parameters if each.grad is not None]
    if not grads:
        return torch.zeros(())
    norm = get_total_norm(grads, foreach=None)
    return norm.full_tensor() if isinstance(norm, DTensor) else norm


def clip(parameters: Sequence[Tensor], norm: Tensor, *, max_norm: float) -> None:
    """Scale gradients whose global norm is `norm` down to `max_norm`; local."""
    clip_grads_with_norm_(parameters, max_norm, norm)


def scale(parameters: Sequence[Tensor], factor: float) -> None:
    """Multiply all gradients by `factor`; local."""
    grads = [each.grad for each in parameters if each.grad is not None]
    locals_ = [each.to_local() if isinstance(each, DTensor) else each for each in grads]
    if locals_:
        torch._foreach_mul_(locals_, factor)
