"""Top-k: only the largest entries of each gradient are sent, as values and indices; the rest is added to later steps.

Every rank sends its own selection to all others: bytes grow with the number of ranks.
"""

from collections.abc import Mapping
from math import ceil

import torch
from torch import Tensor

from gangline.train.parallel.compress.bucket import Bucket, ErrorFeedback, finished
from gangline.train.parallel.compress.collectives import GradientCollectives


class TopK:
    """Compressor that sends the entries with the largest magnitude, with error feedback."""

    def __init__(self, wire: GradientCollectives, *, ratio: float) -> None:
        """`ratio`: share of each gradient's entries that is sent, at least one."""
        self._wire, self._ratio = wire, ratio
        self._residuals = ErrorFeedback()

    def average(self, bucket: Bucket) -> torch.futures.Future[Tensor]:
        flat = bucket.flat
        indices = self._choose(bucket)
        values = flat[indices]
        flat[indices] = 0.0
        for piece in bucket.pieces:
            self._residuals.keep(piece, piece.grad)
        all_values, all_indices = self._wire.gather(values), self._wire.gather(indices.int())
        flat.zero_()
        for number in range(self._wire.size):  # rank by rank, since indices are unique only within a rank
            flat.index_add_(0, all_indices[number], all_values[number])
        flat.div_(self._wire.size)
        return finished(flat)

    def state(self) -> dict[str, Tensor]:
        return self._residuals.state()

    def load(self, state: Mapping[str, Tensor]) -> None:
        self._residuals.load(state)

    def _choose(self, bucket: Bucket) -> Tensor:
        """Indices in the bucket, after the residuals were added."""
        chosen, start = [], 0
        for piece in bucket.pieces:
            self._residuals.add_to(piece)
            chosen.append(largest(piece.grad.reshape(-1), ceil(self._ratio * piece.grad.numel())) + start)
            start += piece.grad.numel()
        return torch.cat(chosen)


def largest(values: Tensor, count: int) -> Tensor:
    """Places of the `count` values with the largest magnitude in a flat tensor, or of all, in any order."""
    return torch.topk(values.abs(), min(values.numel(), count), sorted=False).indices
