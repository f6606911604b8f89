"""Kinds of compression: as fp16 or bf16, as int8, as thin factors, the largest entries, and none."""

from collections.abc import Mapping, Sequence
from math import ceil
from zlib import crc32

import torch
import torch.distributed as dist
from torch import Tensor

from gangline.train.parallel.compress.bucket import Bucket, Compressor, ErrorFeedback, Piece, finished
from gangline.train.parallel.compress.collectives import GradientCollectives
from gangline.train.runtime.initialization import derived_seed


class Half(Compressor):
    """Divides before it sums, so that fp16 does not overflow if the mean does not."""

    def __init__(self, wire: GradientCollectives, dtype: torch.dtype) -> None:
        self._wire, self._dtype = wire, dtype

    def average(self, bucket: Bucket) -> torch.futures.Future[Tensor]:
        """Runs during the backward pass."""
        flat = bucket.flat
        small = flat.to(self._dtype).div_(self._wire.size)
        work = dist.all_reduce(small, group=self._wire.group, async_op=True)
        return work.get_future().then(lambda done: flat.copy_(done.value()[0]))


class Uncompressed(Compressor):
    """No compression at all."""

    def __init__(self, wire: GradientCollectives) -> None:
        self._wire = wire

    def average(self, bucket: Bucket) -> torch.futures.Future[Tensor]:
        self._wire.mean(bucket.flat)
        return finished(bucket.flat)


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


class Int8(ErrorFeedback):
    """Two-shot int8: every rank quantizes, sums its part of all gradients in fp32, quantizes the mean, sends it to all.

    A group of 256 values has one scale. Each group is summed by one rank, so the bytes do not grow with the world size.
    The error of the first quantization stays with its rank, that of the second with the rank that summed: both are
    added to the next step's gradients.
    """

    def __init__(self, wire: GradientCollectives) -> None:
        super().__init__()
        self._wire = wire

    def average(self, bucket: Bucket) -> torch.futures.Future[Tensor]:
        for piece in bucket.pieces:
            self.add_to(piece)
        slots, groups = self._slots(bucket.pieces), _grouped(bucket.pieces)
        codes, scales = quantise(groups[slots])
        tensor = groups.clone()
        tensor[slots] -= dequantise(codes, scales)
        mean = dequantise(self._wire.exchange(codes), self._wire.exchange(scales)).sum(dim=0) / self._wire.size
        codes, scales = quantise(mean)
        tensor[slots[self._wire.rank]] += (mean - dequantise(codes, scales)) * self._wire.size
        groups[slots] = dequantise(self._wire.gather(codes), self._wire.gather(scales))
        for (piece, unsent), (_, average) in zip(
            _parts(bucket.pieces, tensor), _parts(bucket.pieces, groups), strict=True
        ):
            self.keep(piece, unsent)
            piece.grad.copy_(average)
        return finished(bucket.flat)

    def _slots(self, pieces: Sequence[Piece]) -> Tensor:
        """Numbers of the groups that each rank sums, [ranks, most]; unused slots hold the number of the empty group.

        The rank depends on the parameter's name and the position in it, not on the bucket.
        """
        size = self._wire.size
        owners = torch.cat([(torch.arange(_num(piece)) + crc32(piece.name.encode())) % size for piece in pieces])
        owned = [torch.nonzero(owners == rank).flatten() for rank in range(size)]
        slots = torch.full((size, max(map(len, owned))), len(owners))
        for rank, groups in enumerate(owned):
            slots[rank, : len(groups)] = groups
        return slots.to(pieces[0].grad.device)


def _num(piece: Piece) -> int:
    """Groups of one gradient, the last one padded."""
    return ceil(piece.grad.numel() / GROUP)


def _grouped(pieces: Sequence[Piece]) -> Tensor:
    """All gradients in groups, [groups + 1, values], padded with zeros; the last group is empty."""
    groups = pieces[0].grad.new_zeros((sum(map(_num, pieces)) + 1, GROUP))
    for piece, part in _parts(pieces, groups):
        part.copy_(piece.grad)
    return groups


def _parts(pieces: Sequence[Piece], groups: Tensor) -> list[tuple[Piece, Tensor]]:
    """Each gradient's own values in `groups`, as views."""
    flat, start, found = groups.view(-1), 0, []
    for piece in pieces:
        found.append((piece, flat[start : start + piece.grad.numel()].view_as(piece.grad)))
        start += _num(piece) * GROUP
    return found


_FACTOR = "factor/"


class PowerSGD(ErrorFeedback):
    """PowerSGD (Vogels, Karimireddy, Jaggi 2019): a gradient matrix is sent as two thin factors, M = P Q^T.

    Q of one step starts the next one's power iteration; the error of the factors is added to the next gradients. What
    is no matrix goes uncompressed. The hook of torch does the same, but stores state by bucket and runs its three
    collectives in callbacks, which have no fixed order on gloo; here state is stored by parameter, and all ranks make
    the same calls in the same order.
    """

    def __init__(self, wire: GradientCollectives, *, rank: int, seed: int) -> None:
        """`rank`: columns of the factors. `seed`: of the first ones, equal on all ranks."""
        super().__init__()
        self._wire, self._rank, self._seed = wire, rank, seed
        self._factors: dict[str, Tensor] = {}

    def average(self, bucket: Bucket) -> torch.futures.Future[Tensor]:
        thin = [piece for piece in bucket.pieces if self._pays_off(piece)]
        whole = [piece.grad for piece in bucket.pieces if not self._pays_off(piece)]
        for piece in thin:
            self.add_to(piece)
        matrices = [_matrix(piece).clone() for piece in thin]  # the bits of a product depend on its memory address
        q = [orthogonal(self._factor(piece)) for piece in thin]
        p = [matrix @ factor for matrix, factor in zip(matrices, q, strict=True)]
        self._share([*p, *whole])
        p = [orthogonal(each) for each in p]
        q = [matrix.T @ factor for matrix, factor in zip(matrices, p, strict=True)]
        self._share(q)
        for piece, tensor, right in zip(thin, p, q, strict=True):
            self._factors[piece.name] = right
            product = (tensor @ right.T).view_as(piece.grad)
            self.keep(piece, piece.grad - product)
            piece.grad.copy_(product)
        return finished(bucket.flat)

    def state(self) -> dict[str, Tensor]:
        return super().state() | {_FACTOR + name: factor for name, factor in self._factors.items()}

    def load(self, state: Mapping[str, Tensor]) -> None:
        super().load(state)
        self._factors = {
            name.removeprefix(_FACTOR): factor.clone() for name, factor in state.items() if name.startswith(_FACTOR)
        }

    def _pays_off(self, piece: Piece) -> bool:
        """Whether the factors are smaller than half of the matrix."""
        if piece.grad.dim() < 2:
            return False
        rows, columns = _matrix(piece).shape
        return 2 * (rows + columns) * min(self._rank, rows, columns) < rows * columns

    def _factor(self, piece: Piece) -> Tensor:
        """Q of the last step, or a new one; values that are not finite become 0."""
        rows, columns = _matrix(piece).shape
        shape = (columns, min(self._rank, rows, columns))
        tensor = self._factors.get(piece.name)
        if tensor is not None and tensor.shape == shape:
            return torch.nan_to_num(tensor, nan=0.0, posinf=0.0, neginf=0.0).to(piece.grad)
        generator = torch.Generator().manual_seed(derived_seed(self._seed, "powersgd", piece.name))
        return torch.randn(shape, generator=generator).to(piece.grad)

    def _share(self, tensors: Sequence[Tensor]) -> None:
        """Mean of each over the ranks, in one collective."""
        if not tensors:
            return
        flat = torch.cat([each.reshape(-1) for each in tensors])
        self._wire.mean(flat)
        for tensor, part in zip(tensors, torch.split(flat, [each.numel() for each in tensors]), strict=True):
            tensor.copy_(part.view_as(tensor))


def orthogonal(factor: Tensor) -> Tensor:
    """Orthonormal columns with the span of those of `factor`."""
    columns: Tensor = torch.linalg.qr(factor).Q
    return columns


def _matrix(piece: Piece) -> Tensor:
    return piece.grad.view(piece.grad.shape[0], -1)


class TopK(ErrorFeedback):
    """Only the entries with the largest magnitude of each gradient are sent, as values and indices.

    Every rank sends its own selection to all others: bytes grow with the number of ranks.
    """

    def __init__(self, wire: GradientCollectives, *, ratio: float) -> None:
        """`ratio`: share of each gradient's entries that is sent, at least one."""
        super().__init__()
        self._wire, self._ratio = wire, ratio

    def average(self, bucket: Bucket) -> torch.futures.Future[Tensor]:
        flat, chosen, start = bucket.flat, [], 0
        for piece in bucket.pieces:
            self.add_to(piece)
            chosen.append(largest(piece.grad.reshape(-1), ceil(self._ratio * piece.grad.numel())) + start)
            start += piece.grad.numel()
        indices = torch.cat(chosen)
        values = flat[indices]
        flat[indices] = 0.0
        for piece in bucket.pieces:
            self.keep(piece, piece.grad)
        all_values, all_indices = self._wire.gather(values), self._wire.gather(indices.int())
        flat.zero_()
        for number in range(self._wire.size):  # rank by rank, since indices are unique only within a rank
            flat.index_add_(0, all_indices[number], all_values[number])
        flat.div_(self._wire.size)
        return finished(flat)


def largest(values: Tensor, count: int) -> Tensor:
    """Places of the `count` values with the largest magnitude in a flat tensor, or of all, in any order."""
    return torch.topk(values.abs(), min(values.numel(), count), sorted=False).indices
