"""Parameters of one mesh in one group: torch's fused and foreach optimizers take tensors that lie alike."""

from typing import Any

import torch
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor


def one_mesh_a_group(optimizer: torch.optim.Optimizer) -> None:
    """Split the groups of `optimizer`, which has no state yet, by the meshes of their parameters; local.

    Every group keeps its options, so that what is learned stays the same.
    """
    optimizer.param_groups[:] = [part for group in optimizer.param_groups for part in _split(group)]


def _split(group: dict[str, Any]) -> list[dict[str, Any]]:
    found: dict[DeviceMesh | None, list[Tensor]] = {}
    for each in group["params"]:
        found.setdefault(each.device_mesh if isinstance(each, DTensor) else None, []).append(each)
    if len(found) < 2:
        return [group]
    return [group | {"params": parameters} for parameters in found.values()]
