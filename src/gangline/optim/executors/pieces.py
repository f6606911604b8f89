"""Where the part of a parameter that a rank holds and a matrix of that parameter overlap."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor

from gangline.optim.executors.holders import Part
from gangline.optim.plan.matrix import LogicalMatrix, RowRanges

Rows = slice | Tensor
"""One range, or a number for each row."""


@dataclass(frozen=True, slots=True)
class MatrixPiece:
    """Elements of one matrix that one rank holds."""

    stored: Rows
    """Place among the rows of the rank's part."""
    rows: Rows
    """Place among the rows of the matrix."""
    columns: slice
    """Columns of the matrix."""
    shape: tuple[int, int]

    @property
    def elements(self) -> int:
        """Elements of the matrix that the rank holds."""
        return prod(self.shape)


def overlap(part: Part, matrix: LogicalMatrix, device: torch.device) -> MatrixPiece:
    """Rows of `matrix` that `part` has, in the order in which both have them."""
    wanted = matrix.rows or ((0, matrix.shape[0]),)
    runs = list(_runs(part.rows, wanted))
    count, columns = sum(length for _, _, length in runs), part.columns
    return MatrixPiece(
        stored=_rows([(start, length) for start, _, length in runs], device),
        rows=_rows([(start, length) for _, start, length in runs], device),
        columns=slice(*columns),
        shape=(count, columns[1] - columns[0]) if count else (0, 0),
    )


def _runs(held: RowRanges, wanted: RowRanges) -> Iterator[tuple[int, int, int]]:
    """Row of the part, row of the matrix, and how many follow; both ranges rise."""
    left = right = stored = found = 0
    while left < len(held) and right < len(wanted):
        start, stop = max(held[left][0], wanted[right][0]), min(held[left][1], wanted[right][1])
        if start < stop:
            yield stored + start - held[left][0], found + start - wanted[right][0], stop - start
        if held[left][1] <= wanted[right][1]:
            stored += held[left][1] - held[left][0]
            left += 1
        else:
            found += wanted[right][1] - wanted[right][0]
            right += 1


def _rows(runs: list[tuple[int, int]], device: torch.device) -> Rows:
    if not runs:
        return slice(0, 0)
    start, length = runs[0]
    for following, more in runs[1:]:
        if following != start + length:
            return torch.cat([torch.arange(at, at + count, device=device) for at, count in runs])
        length += more
    return slice(start, start + length)
