"""Two-shot int8: every rank quantizes, sums its part of all gradients in fp32, quantizes the mean, sends it to all.

A group of 256 values has one scale. Each group is summed by one rank, so the bytes do not grow with the world size. The
error of the first quantization stays with its rank, that of the second with the rank that summed: both are added to the
next step's gradients.
"""

from collections.abc import Mapping, Sequence
from math import ceil
from zlib import crc32

import torch
from torch import Tensor

from gangline.train.parallel.compress.bucket import Bucket, ErrorFeedback, SplitPiece, finished
from gangline.train.parallel.compress.collectives import GradientCollectives

GROUP = 256
_LARGEST = 127.0


def quantise(groups: Tensor) -> tuple[Tensor, Tensor]:
    """int8 codes of `groups`, [..., values], and scales, [..., 1]; the scale of a non-finite group is non-finite."""
    scales = groups.abs().amax(dim=-1, keepdim=True) / _LARGEST
    codes = torch.round(groups / torch.where(scales == 0, 1.0, scales))
    return torch.nan_to_num(codes, nan=0.0).to(torch.int8), scales


def dequantise(codes: Tensor, scales: Tensor) -> Tensor:
    """Inverse of `quantise`, in float32."""
    return codes.float() * scales


class Int8:
    """Compressor that sends gradients and their mean as int8, with error feedback on both."""

    def __init__(self, wire: GradientCollectives) -> None:
        self._wire = wire
        self._residuals = ErrorFeedback()

    def average(self, bucket: Bucket) -> torch.futures.Future[Tensor]:
        for piece in bucket.pieces:
            self._residuals.add_to(piece)
        slots, groups = self._slots(bucket.pieces), _grouped(bucket.pieces)
        codes, scales = quantise(groups[slots])
        left = groups.clone()
        left[slots] -= dequantise(codes, scales)
        mean = dequantise(self._wire.exchange(codes), self._wire.exchange(scales)).sum(dim=0) / self._wire.size
        codes, scales = quantise(mean)
        left[slots[self._wire.rank]] += (mean - dequantise(codes, scales)) * self._wire.size
        groups[slots] = dequantise(self._wire.gather(codes), self._wire.gather(scales))
        for (piece, unsent), (_, average) in zip(
            _parts(bucket.pieces, left), _parts(bucket.pieces, groups), strict=True
        ):
            self._residuals.keep(piece, unsent)
            piece.grad.copy_(average)
        return finished(bucket.flat)

    def state(self) -> dict[str, Tensor]:
        return self._residuals.state()

    def load(self, state: Mapping[str, Tensor]) -> None:
        self._residuals.load(state)

    def _slots(self, pieces: Sequence[SplitPiece]) -> Tensor:
        """Numbers of the groups that each rank sums, [ranks, most]; unused slots hold the number of the empty group.

        The rank depends on the parameter's name and the position in it, not on the bucket.
        """
        size = self._wire.size
        owners = torch.cat([(torch.arange(_num(each)) + crc32(each.name.encode())) % size for each in pieces])
        owned = [torch.nonzero(owners == rank).flatten() for rank in range(size)]
        slots = torch.full((size, max(map(len, owned))), len(owners))
        for rank, groups in enumerate(owned):
            slots[rank, : len(groups)] = groups
        return slots.to(pieces[0].grad.device)


def _num(piece: SplitPiece) -> int:
    """Groups of one gradient, the last one padded."""
    return ceil(piece.grad.numel() / GROUP)


def _grouped(pieces: Sequence[SplitPiece]) -> Tensor:
    """All gradients in groups, [groups + 1, values], padded with zeros; the last group is empty."""
    groups = pieces[0].grad.new_zeros((sum(map(_num, pieces)) + 1, GROUP))
    for piece, part in _parts(pieces, groups):
        part.copy_(piece.grad)
    return groups


def _parts(pieces: Sequence[SplitPiece], groups: Tensor) -> list[tuple[SplitPiece, Tensor]]:
    """Each gradient's own values in `groups`, as views."""
    flat, start, found = groups.view(-1), 0, []
    for piece in pieces:
        found.append((piece, flat[start : start + piece.grad.numel()].view_as(piece.grad)))
        start += _num(piece) * GROUP
    return found
