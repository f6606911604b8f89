"""Tensors that a checkpoint does not have, as boxes of those that it has: rows cut out of one, or joined. Pure."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import prod

from gangline.checkpoint.format.index import Chunk, StoredTensor

Run = tuple[int, int, int]
"""First row in the stored tensor, first row in the derived one, and how many follow."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DerivedChunk(Chunk):
    """A chunk whose rows are some of a stored one, each as far from the next."""

    of: Chunk
    name: str
    """Name of the stored tensor."""
    first: int
    """Index in `of` of the first element."""
    stride: int = 1
    """Rows of `of` from one of its rows to the next."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DerivedTensor(StoredTensor):
    """Its chunks cover it as those of the stored tensors cover these."""

    def __post_init__(self) -> None:
        """Nothing to check: thousands of rows of an interleaved tensor are boxes of their own."""


def whole(name: str, stored: StoredTensor) -> DerivedTensor:
    """The stored tensor itself, to have another name."""
    chunks = (
        DerivedChunk(file=c.file, offsets=c.offsets, sizes=c.sizes, of=c, name=name, first=0) for c in stored.chunks
    )
    return DerivedTensor(dtype=stored.dtype, shape=stored.shape, chunks=tuple(chunks))


def cut(name: str, stored: StoredTensor, runs: Sequence[Run], *, drops_dim: bool) -> DerivedTensor:
    """Rows of a stored tensor; `drops_dim`: it is one row, the number of a matrix."""
    rows = sum(count for _, _, count in runs)
    stride = _stride(runs)
    chunks = tuple(_strided_boxes(name, stored.chunks, runs, stride) if stride else _boxes(name, stored.chunks, runs))
    if not drops_dim:
        return DerivedTensor(dtype=stored.dtype, shape=(rows, *stored.shape[1:]), chunks=chunks)
    chunks = tuple(replace(chunk, offsets=chunk.offsets[1:], sizes=chunk.sizes[1:]) for chunk in chunks)
    return DerivedTensor(dtype=stored.dtype, shape=stored.shape[1:], chunks=chunks)


def join(parts: Iterable[tuple[str, StoredTensor, Sequence[Run]]], *, adds_dim: bool) -> DerivedTensor:
    """Rows of several stored tensors of one dtype; `adds_dim`: each of them is one row, the number of a matrix."""
    chunks: list[DerivedChunk] = []
    rows = 0
    for name, stored, runs in parts:
        chunks.extend(_boxes(name, stored.chunks, runs, adds_dim=adds_dim))
        rows += sum(count for _, _, count in runs)
        inner, dtype = stored.shape if adds_dim else stored.shape[1:], stored.dtype
    ordered = sorted(chunks, key=lambda chunk: chunk.offsets)
    return DerivedTensor(dtype=dtype, shape=(rows, *inner), chunks=tuple(ordered))


def _stride(runs: Sequence[Run]) -> int:
    """Distance between neighbouring single rows if it is the same for all; else 0."""
    found = {after[0] - before[0] for before, after in pairwise(runs)}
    return found.pop() if len(found) == 1 and all(count == 1 for _, _, count in runs) else 0


def _strided_boxes(name: str, chunks: Iterable[Chunk], runs: Sequence[Run], stride: int) -> Iterator[DerivedChunk]:
    """One box for each chunk, of single rows at one distance."""
    first = runs[0][0]
    for chunk in chunks:
        begin, row = chunk.offsets[0], prod(chunk.sizes[1:])
        start, stop = (max(0, -((first - each) // stride)) for each in (begin, begin + chunk.sizes[0]))
        if start < (stop := min(stop, len(runs))):
            yield DerivedChunk(
                file=chunk.file, offsets=(start, *chunk.offsets[1:]), sizes=(stop - start, *chunk.sizes[1:]),
                of=chunk, name=name, first=(first + start * stride - begin) * row, stride=stride,
            )  # fmt: skip


def _boxes(
    name: str, chunks: Iterable[Chunk], runs: Sequence[Run], *, adds_dim: bool = False
) -> Iterator[DerivedChunk]:
    """Runs rise in the stored tensor."""
    firsts = [stored for stored, _, _ in runs]
    for chunk in chunks:
        offsets, sizes = ((0, *chunk.offsets), (1, *chunk.sizes)) if adds_dim else (chunk.offsets, chunk.sizes)
        begin, end = offsets[0], offsets[0] + sizes[0]
        for stored, derived, count in runs[max(0, bisect_right(firsts, begin) - 1) : bisect_left(firsts, end)]:
            start, stop = max(stored, begin), min(stored + count, end)
            if start < stop:
                yield DerivedChunk(
                    file=chunk.file, offsets=(derived + start - stored, *offsets[1:]), sizes=(stop - start, *sizes[1:]),
                    of=chunk, name=name, first=(start - begin) * prod(sizes[1:]),
                )  # fmt: skip
