"""Names of torch that move between releases or are not public; executors are used without `train`, too."""

from collections.abc import Callable

import torch.distributed as dist
from torch.distributed import GradBucket  # type: ignore[attr-defined]  # torch has it, its stubs do not
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

all_gather_single: Callable[..., dist.Work | None] = getattr(dist, "all_gather_single", dist.all_gather_into_tensor)
"""All-gather into one tensor, by rank; its name until 2.15 was `all_gather_into_tensor`."""

__all__ = ["GradBucket", "all_gather_single", "compute_local_shape_and_global_offset"]
