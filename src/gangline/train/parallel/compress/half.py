"""Gradients as fp16 or bf16 on the wire, half the bytes, and uncompressed gradients. Both have no state."""

from collections.abc import Mapping

import torch
import torch.distributed as dist
from torch import Tensor

from gangline.train.parallel.compress.bucket import Bucket, finished
from gangline.train.parallel.compress.collectives import GradientCollectives


class Half:
    """Divides before it sums, so that fp16 does not overflow if the mean does not."""

    def __init__(self, wire: GradientCollectives, dtype: torch.dtype) -> None:
        self._wire, self._dtype = wire, dtype

    def average(self, bucket: Bucket) -> torch.futures.Future[Tensor]:
        """Runs during the backward pass."""
        flat = bucket.flat
        small = flat.to(self._dtype).div_(self._wire.size)
        work = dist.all_reduce(small, group=self._wire.group, async_op=True)
        return work.get_future().then(lambda done: flat.copy_(done.value()[0]))

    def state(self) -> dict[str, Tensor]:
        return {}

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Nothing is remembered."""


class Uncompressed:
    """No compression at all."""

    def __init__(self, wire: GradientCollectives) -> None:
        self._wire = wire

    def average(self, bucket: Bucket) -> torch.futures.Future[Tensor]:
        self._wire.mean(bucket.flat)
        return finished(bucket.flat)

    def state(self) -> dict[str, Tensor]:
        return {}

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Nothing is remembered."""
