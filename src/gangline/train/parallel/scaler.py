"""Loss scaling of fp16 for gradients that lie in pieces, on whichever meshes.

torch's own takes lists of tensors that all lie alike, and asks only the ranks of their mesh for overflows.
"""

from collections.abc import Iterable, Sequence

import torch
import torch.distributed as dist
from torch import Tensor
from torch.amp.grad_scaler import GradScaler
from torch.distributed.tensor import DTensor


class GangScaler(GradScaler):
    """Unscales every rank's own pieces; one overflow anywhere and no rank of the gang takes the step."""

    def _unscale_grads_(
        self, optimizer: torch.optim.Optimizer, inv_scale: Tensor, found_inf: Tensor, allow_fp16: bool
    ) -> dict[torch.device, Tensor]:
        del allow_fp16  # gradients are as wide as their parameters here: fp32
        grads = [each.grad for group in optimizer.param_groups for each in group["params"] if each.grad is not None]
        for pieces in _alike([each.to_local() if isinstance(each, DTensor) else each for each in grads]):
            here = torch.zeros_like(found_inf, device=pieces[0].device)
            torch._amp_foreach_non_finite_check_and_unscale_(pieces, here, inv_scale.to(here.device))
            found_inf += here.to(found_inf.device)
        if dist.is_initialized() and dist.get_world_size() > 1:
            dist.all_reduce(found_inf, dist.ReduceOp.MAX)
        return {found_inf.device: found_inf}


def _alike(tensors: Sequence[Tensor]) -> Iterable[list[Tensor]]:
    """Those of one device and type together."""
    found: dict[tuple[torch.device, torch.dtype], list[Tensor]] = {}
    for each in tensors:
        found.setdefault((each.device, each.dtype), []).append(each)
    return found.values()
