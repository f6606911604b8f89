"""Products of matrices on a GPU whose result is symmetric: one triangle is computed, the other one is its image.

A program computes one tile on or below the diagonal in float32, rounds it once and stores it at both places. What a
tile adds up depends on neither the batch nor the other tiles, so a batch has the bits of its matrices one by one.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

_COPIED_BYTES = 16
"""Rows begin at multiples of it, as the GPU's copies of tiles want."""


_SIDE, _DEPTH, _WARPS, _STAGES = 128, 64, 8, 4
"""Side of a tile, depth loaded at once, warps, stages: the fastest of nine on an H100, from 1,024 rows in batches."""


def takes(shape: torch.Size, dtype: torch.dtype) -> bool:
    """Can products of matrices of this shape and of their Gram matrices be formed here?"""
    return dtype in (torch.bfloat16, torch.float16) and not any(side * dtype.itemsize % _COPIED_BYTES for side in shape)


def symmetric_product(left: Tensor, right: Tensor, plus: Tensor | None = None, *, alpha: float = 1.0,
                      beta: float = 0.0) -> Tensor:  # fmt: skip
    """`alpha left right^T + beta plus` of one matrix or several, where that is symmetric.

    Args:
        left: `[..., M, K]`, contiguous, of a shape and dtype that `takes` knows.
        right: Like `left`, or `left` itself.
        plus: `[..., M, M]`, symmetric; only its lower triangle is read.

    Returns:
        `[..., M, M]`, equal to its transpose to the bit.
    """
    rows, depth = left.shape[-2:]
    out = left.new_empty(*left.shape[:-1], rows)
    count = triton.cdiv(rows, _SIDE)
    descriptors = [TensorDescriptor.from_tensor(tensor.view(-1, depth), [_SIDE, _DEPTH]) for tensor in (left, right)]
    _lower_tiles[(count * (count + 1) // 2, out.numel() // rows**2)](
        *descriptors, out if plus is None else plus, out, rows, depth, alpha, beta, has_plus=plus is not None,
        side=_SIDE, step=_DEPTH, num_warps=_WARPS, num_stages=_STAGES,
    )  # fmt: skip
    return out


@triton.jit  # type: ignore[untyped-decorator]  # triton has no types
def _lower_tiles(  # type: ignore[no-untyped-def]  # it accepts none  # noqa: PLR0917  a kernel has that many
    left, right, plus, out, rows, depth, alpha, beta, has_plus: tl.constexpr, side: tl.constexpr, step: tl.constexpr
):  # fmt: skip
    number = tl.program_id(0)
    i = ((tl.sqrt(8.0 * number.to(tl.float32) + 1.0) - 1.0) / 2.0).to(tl.int32)
    i = tl.where(i * (i + 1) // 2 > number, i - 1, i)
    i = tl.where((i + 1) * (i + 2) // 2 <= number, i + 1, i)
    j = number - i * (i + 1) // 2
    first = tl.program_id(1) * rows
    total = tl.zeros((side, side), tl.float32)
    for start in range(0, depth, step):
        of_left = left.load([first + i * side, start])
        of_right = right.load([first + j * side, start])
        total = tl.dot(of_left, of_right.T, total)
    total *= alpha
    row, column = i * side + tl.arange(0, side), j * side + tl.arange(0, side)
    matrix = tl.program_id(1).to(tl.int64) * rows * rows
    lower = row[:, None] * rows + column[None, :]
    inside = (row[:, None] < rows) & (column[None, :] < rows)
    if has_plus:
        total += beta * tl.load(plus + matrix + lower, inside, 0.0).to(tl.float32)
    rounded = total.to(out.dtype.element_ty)
    if i == j:  # both halves of this tile are computed; the lower one counts
        upper = rounded.T
        rounded = tl.where(row[:, None] >= column[None, :], rounded, upper)
        tl.store(out + matrix + lower, rounded, inside)
    else:
        tl.store(out + matrix + lower, rounded, inside)
        mirrored = column[:, None] * rows + row[None, :]
        tl.store(out + matrix + mirrored, rounded.T, (column[:, None] < rows) & (row[None, :] < rows))
