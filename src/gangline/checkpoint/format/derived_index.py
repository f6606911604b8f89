"""Tensors that a checkpoint does not have, as boxes of those that it has: rows cut out of one, or joined. Pure."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod

from gangline.checkpoint.format.index import Chunk, StoredTensor

Run = tuple[int, int, int]
"""First row in the stored tensor, first row in the derived one, and how many follow."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DerivedChunk(Chunk):
    """A chunk whose elements are some that follow one another in a stored one."""

    of: Chunk
    name: str
    """Of the stored tensor."""
    first: int
    """Of its elements in `of`."""


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
    chunks = tuple(_boxes(name, stored.chunks, runs))
    if not drops_dim:
        return DerivedTensor(dtype=stored.dtype, shape=(rows, *stored.shape[1:]), chunks=chunks)
    chunks = tuple(replace(each, offsets=each.offsets[1:], sizes=each.sizes[1:]) for each in chunks)
    return DerivedTensor(dtype=stored.dtype, shape=stored.shape[1:], chunks=chunks)


def join(parts: Iterable[tuple[str, StoredTensor, Sequence[Run]]], *, adds_dim: bool) -> DerivedTensor:
    """Rows of several stored tensors of one dtype; `adds_dim`: each of them is one row, the number of a matrix."""
    chunks: list[DerivedChunk] = []
    rows = 0
    for name, stored, runs in parts:
        chunks.extend(_boxes(name, stored.chunks, runs, adds_dim=adds_dim))
        rows += sum(count for _, _, count in runs)
        inner, dtype = stored.shape if adds_dim else stored.shape[1:], stored.dtype
    ordered = sorted(chunks, key=lambda each: each.offsets)
    return DerivedTensor(dtype=dtype, shape=(rows, *inner), chunks=tuple(ordered))


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
