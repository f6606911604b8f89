"""Collectives of compressed gradients over one group; the time that they block counts as waiting."""

import torch
import torch.distributed as dist
from torch import Tensor

from gangline.train.account.clock import WaitMeter
from gangline.train.runtime.torch_compat import all_gather_single


class GradientCollectives:
    """All ranks of the group make the same calls in the same order, with tensors of equal shapes."""

    def __init__(self, group: dist.ProcessGroup | None, waits: WaitMeter) -> None:
        """`group` None: all ranks."""
        self.group: dist.ProcessGroup = dist.group.WORLD if group is None else group  # type: ignore[assignment]  # a group exists
        self.size = dist.get_world_size(self.group)
        self.rank = dist.get_rank(self.group)
        self._waits = waits

    def sum(self, tensor: Tensor) -> None:
        """Sum over the ranks, in place."""
        with self._waits.timed():
            dist.all_reduce(tensor, group=self.group)

    def mean(self, tensor: Tensor) -> None:
        """Mean over the ranks, in place."""
        with self._waits.timed():
            dist.all_reduce(tensor, op=dist.ReduceOp.AVG, group=self.group)

    def gather(self, tensor: Tensor) -> Tensor:
        """The tensors of all ranks, stacked by rank."""
        out = tensor.new_empty((self.size * tensor.shape[0], *tensor.shape[1:]))
        with self._waits.timed():
            all_gather_single(out, tensor, group=self.group)
        return out.view(self.size, *tensor.shape)

    def exchange(self, tensor: Tensor) -> Tensor:
        """Send row r to rank r; the result has a row from each rank."""
        out = torch.empty_like(tensor)
        with self._waits.timed():
            dist.all_to_all_single(out, tensor, group=self.group)
        return out
