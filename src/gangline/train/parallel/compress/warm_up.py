"""Whole gradients at first: while weights move fast, an approximation sends them astray."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from gangline.train.parallel.compress.bucket import Bucket, Compressor


class AfterWarmUp:
    """One compressor up to a step, another one from then on; only the second remembers anything."""

    def __init__(self, first: Compressor, then: Compressor, *, is_warm: Callable[[], bool]) -> None:
        """`is_warm` says, alike on all ranks, whether it is the turn of `then`."""
        self._first, self._then, self._is_warm = first, then, is_warm

    def average(self, bucket: Bucket) -> torch.futures.Future[Tensor]:
        return (self._then if self._is_warm() else self._first).average(bucket)

    def state(self) -> dict[str, Tensor]:
        return self._then.state()

    def load(self, state: Mapping[str, Tensor]) -> None:
        self._then.load(state)
