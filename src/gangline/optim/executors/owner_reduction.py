"""Gradients of DDP to the owners of their matrices: half the bytes of an average that every rank gets.

    optimizer = MatrixOptimizer(groups, rule=Muon(), replicas=group, shares_state=True)
    model.register_comm_hook(None, optimizer.reduction.average)

After the backward pass `drop_foreign` takes away what this rank has no whole gradient of.
"""

from collections.abc import Mapping

import torch
import torch.distributed as dist
from torch import Tensor

from gangline.optim.executors.exchange import UpdateExchange
from gangline.optim.executors.torch_names import GradBucket

TensorFuture = torch.futures.Future[torch.Tensor]


class OwnerReduction:
    """Reduces buckets of gradients; all ranks with copies make the same calls."""

    def __init__(self, owners: Mapping[Tensor, int], copies: UpdateExchange) -> None:
        """Args:
        owners: Parameter to its owner among `copies`; what is not in it is averaged on all ranks.
        copies: Ranks with the same parameters.
        """
        self._owners, self._copies = owners, copies

    def average(self, state: object, bucket: GradBucket) -> TensorFuture:
        """The hook: on CUDA it overlaps the backward pass, on the CPU it blocks."""
        del state
        buffer = bucket.buffer().div_(self._copies.ranks)
        pairs = list(zip(bucket.parameters(), bucket.gradients(), strict=True))
        works = [
            self._copies.reduce(grad, self._owners[tensor]).work for tensor, grad in pairs if tensor in self._owners
        ]
        others = [grad for tensor, grad in pairs if tensor not in self._owners]
        flat = (
            torch.cat([other.flatten() for other in others]) if others else buffer.new_zeros(1)
        )  # one work in any case
        works.append(self._copies.sum(flat).work)

        def unpack(_: object) -> Tensor:
            parts = torch.split(flat, [other.numel() for other in others]) if others else ()
            for grad, part in zip(others, parts, strict=True):
                grad.copy_(part.view_as(grad))
            return buffer

        if buffer.is_cuda:  # one stream runs all of them in order
            assert works[-1] is not None
            return works[-1].get_future().then(unpack)
        for work in works:
            if work is not None:
                work.wait()
        done: TensorFuture = torch.futures.Future()
        done.set_result(unpack(None))
        return done

    def drop_foreign(self) -> None:
        """Forget gradients of matrices that other ranks own, which are sums of some ranks; local."""
        for parameter, owner in self._owners.items():
            if owner != self._copies.place:
                parameter.grad = None

    @property
    def owned(self) -> frozenset[Tensor]:
        """Parameters whose gradient is on one rank of `copies` after `drop_foreign`."""
        return frozenset(self._owners)

    @property
    def group(self) -> dist.ProcessGroup | None:
        """Group of `copies`."""
        return self._copies.group
