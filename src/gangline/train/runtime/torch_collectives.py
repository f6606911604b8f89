"""Collectives and stores of torch that moved between 2.11 and 2.15, for short processes: they import no FSDP.

All other names of this kind are in `torch_compat`.
"""

from collections.abc import Callable

import torch.distributed as dist
from torch._C._distributed_c10d import FileStore

all_gather_single: Callable[..., dist.Work | None] = getattr(dist, "all_gather_single", dist.all_gather_into_tensor)
"""All-gather into one tensor, by rank; its name until 2.15 was `all_gather_into_tensor`."""

reduce_scatter_single: Callable[..., dist.Work | None] = getattr(
    dist, "reduce_scatter_single", dist.reduce_scatter_tensor
)
"""Reduce-scatter of one tensor, by rank; its name until 2.15 was `reduce_scatter_tensor`."""

__all__ = ["FileStore", "all_gather_single", "reduce_scatter_single"]
