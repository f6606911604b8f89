"""Full copies around tensor-parallel modules, whose gradients are averaged.

DDP and torch's older `replicate` take the piece that this rank holds of a parameter for the whole of it. What FSDP2
builds on keeps pieces what they are.
"""

import warnings

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh

from gangline.spec.plan import Precision
from gangline.train.compat import replicate
from gangline.train.parallel.data_parallel import VIEW_WARNING
from gangline.train.parallel.precision import shard_policy


def copy(
    module: nn.Module, mesh: DeviceMesh, *, precision: Precision, is_root: bool, reduce: torch.dtype = torch.float32
) -> None:
    """Average the gradients of what no inner call took over `mesh` in the precision `reduce`; all ranks must call."""
    warnings.filterwarnings("ignore", message=VIEW_WARNING)
    replicate(module, mesh=mesh, mp_policy=shard_policy(precision, is_root=is_root, reduce=reduce))
