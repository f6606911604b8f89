"""PowerSGD (Vogels, Karimireddy, Jaggi 2019): a gradient matrix is sent as two thin factors, M = P Q^T.

Q of one step starts the next one's power iteration; the error of the factors is added to the next gradients. The hook
of torch does the same, but stores state by bucket and runs its three collectives in callbacks, which have no fixed
order on gloo; here state is stored by parameter, and all ranks make the same calls in the same order.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from gangline.train.parallel.compress.bucket import Bucket, ErrorFeedback, SplitPiece, finished
from gangline.train.parallel.compress.collectives import GradientCollectives
from gangline.train.runtime.initialization import derived_seed

_FACTOR = "factor/"


class PowerSGD:
    """Compressor that sends matrices as two factors of low rank, with error feedback; the rest goes uncompressed."""

    def __init__(self, wire: GradientCollectives, *, rank: int, seed: int) -> None:
        """`rank`: columns of the factors. `seed`: of the first ones, equal on all ranks."""
        self._wire, self._rank, self._seed = wire, rank, seed
        self._residuals = ErrorFeedback()
        self._factors: dict[str, Tensor] = {}

    def average(self, bucket: Bucket) -> torch.futures.Future[Tensor]:
        thin = [piece for piece in bucket.pieces if self._pays_off(piece)]
        whole = [piece.grad for piece in bucket.pieces if not self._pays_off(piece)]
        for piece in thin:
            self._residuals.add_to(piece)
        matrices = [_matrix(piece).clone() for piece in thin]  # the bits of a product depend on its memory address
        q = [orthogonal(self._factor(piece)) for piece in thin]
        p = [matrix @ factor for matrix, factor in zip(matrices, q, strict=True)]
        self._share([*p, *whole])
        p = [orthogonal(each) for each in p]
        q = [matrix.T @ factor for matrix, factor in zip(matrices, p, strict=True)]
        self._share(q)
        for piece, left, right in zip(thin, p, q, strict=True):
            self._take(piece, left, right)
        return finished(bucket.flat)

    def state(self) -> dict[str, Tensor]:
        return self._residuals.state() | {_FACTOR + name: factor for name, factor in self._factors.items()}

    def load(self, state: Mapping[str, Tensor]) -> None:
        self._residuals.load(state)
        self._factors = {
            name.removeprefix(_FACTOR): factor.clone() for name, factor in state.items() if name.startswith(_FACTOR)
        }

    def _pays_off(self, piece: SplitPiece) -> bool:
        """Whether the factors are smaller than half of the matrix."""
        if piece.grad.dim() < 2:
            return False
        rows, columns = _matrix(piece).shape
        return 2 * (rows + columns) * min(self._rank, rows, columns) < rows * columns

    def _factor(self, piece: SplitPiece) -> Tensor:
        """Q of the last step, or a new one; values that are not finite become 0."""
        rows, columns = _matrix(piece).shape
        shape = (columns, min(self._rank, rows, columns))
        known = self._factors.get(piece.name)
        if known is not None and known.shape == shape:
            return torch.nan_to_num(known, nan=0.0, posinf=0.0, neginf=0.0).to(piece.grad)
        generator = torch.Generator().manual_seed(derived_seed(self._seed, "powersgd", piece.name))
        return torch.randn(shape, generator=generator).to(piece.grad)

    def _share(self, tensors: Sequence[Tensor]) -> None:
        """Mean of each over the ranks, in one collective."""
        if not tensors:
            return
        flat = torch.cat([each.reshape(-1) for each in tensors])
        self._wire.mean(flat)
        for each, part in zip(tensors, torch.split(flat, [each.numel() for each in tensors]), strict=True):
            each.copy_(part.view_as(each))

    def _take(self, piece: SplitPiece, p: Tensor, q: Tensor) -> None:
        """Store Q and the error, and write the product into the gradient."""
        self._factors[piece.name] = q
        product = (p @ q.T).view_as(piece.grad)
        self._residuals.keep(piece, piece.grad - product)
        piece.grad.copy_(product)


def orthogonal(factor: Tensor) -> Tensor:
    """Orthonormal columns with the span of those of `factor`."""
    columns: Tensor = torch.linalg.qr(factor).Q
    return columns


def _matrix(piece: SplitPiece) -> Tensor:
    return piece.grad.view(piece.grad.shape[0], -1)
