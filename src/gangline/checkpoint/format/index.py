"""What the tensors of a checkpoint are and where their chunks lie: `g<generation>-index.json`, read strictly.

A chunk is a box of a tensor, dense in one safetensors file under the key `<name>@<offsets>`. Pure.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from math import prod

from gangline.checkpoint.format.safetensors import ITEM_BYTES
from gangline.errors import IntegrityError

MODEL = "model/"
OPTIMIZER = "optim/"
FRAGMENT = "::"
"""Separator between a parameter and the fragment of it that a state tensor belongs to, in names of tensors, and between
a fragment and a state in keys of the optimizer's state."""
EXTRA = "extra/"
"""Tensors of a strategy, equal on all ranks or sharded over them."""
RANKS = "rank/"
"""Tensors that a strategy keeps on one rank."""

Box = tuple[tuple[int, ...], tuple[int, ...]]
"""Offsets and sizes of a part of a tensor."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Chunk:
    """A piece of one tensor."""

    file: str
    offsets: tuple[int, ...]
    sizes: tuple[int, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredTensor:
    """One tensor; its chunks cover it exactly once."""

    dtype: str
    """Element type by its name in safetensors."""
    shape: tuple[int, ...]
    chunks: tuple[Chunk, ...]

    def __post_init__(self) -> None:
        if self.dtype not in ITEM_BYTES:
            raise IntegrityError(f"unknown dtype {self.dtype!r}")
        if min(self.shape, default=0) < 0:
            raise IntegrityError(f"a shape has no negative size, found {self.shape}")
        for chunk in self.chunks:
            _check_bounds(chunk, self.shape)
        volume = sum(prod(chunk.sizes) for chunk in self.chunks)
        if volume != prod(self.shape) or _overlap(self.chunks):
            raise IntegrityError(f"chunks hold {volume} elements of {prod(self.shape)}, or some of them twice")

    @property
    def size_bytes(self) -> int:
        """Bytes of the whole tensor."""
        return prod(self.shape) * ITEM_BYTES[self.dtype]


@dataclass(frozen=True, kw_only=True, slots=True)
class Index:
    """Which file holds which piece of which tensor."""

    tensors: dict[str, StoredTensor]

    def names(self, head: str) -> list[str]:
        """Names below `head` (`MODEL` or `OPTIMIZER`), sorted."""
        return sorted(name for name in self.tensors if name.startswith(head))

    def files_of(self, boxes: Mapping[str, Box]) -> set[str]:
        """Files that hold any of these parts, by the name of their tensor."""
        return {
            chunk.file
            for name, (offsets, sizes) in boxes.items()
            for chunk in self.tensors[name].chunks
            if len(offsets) == len(chunk.sizes) and _share(chunk, Chunk(file="", offsets=offsets, sizes=sizes))
        }


def own_head(rank: int, ranks: int) -> str:
    """`rank/00003-of-00004/`: prefix of the tensors of one rank; another number of ranks finds none of them."""
    return f"{RANKS}{rank:05d}-of-{ranks:05d}/"


def chunk_key(name: str, offsets: Iterable[int]) -> str:
    """`model/head.weight@0,128`: a chunk's key in its file."""
    return f"{name}@{','.join(map(str, offsets))}"


def _check_bounds(chunk: Chunk, shape: tuple[int, ...]) -> None:
    inside = len(chunk.offsets) == len(chunk.sizes) == len(shape) and all(
        offset >= 0 and size >= 0 and offset + size <= whole
        for offset, size, whole in zip(chunk.offsets, chunk.sizes, shape, strict=True)
    )
    if not inside:
        raise IntegrityError(f"chunk {chunk.offsets} of {chunk.sizes} does not lie inside {shape}")


def _overlap(chunks: tuple[Chunk, ...]) -> bool:
    """Whether two chunks share an element; only neighbours on the first dim are compared if that decides."""
    filled = sorted((chunk for chunk in chunks if prod(chunk.sizes)), key=lambda chunk: chunk.offsets)
    if all(_end(left) <= _start(right) for left, right in pairwise(filled)):
        return False
    return any(_share(left, right) for number, left in enumerate(filled) for right in filled[number + 1 :])


def _start(chunk: Chunk) -> int:
    """First index on the first dim; a scalar is at 0."""
    return chunk.offsets[0] if chunk.offsets else 0


def _end(chunk: Chunk) -> int:
    """Index after the last one on the first dim."""
    return chunk.offsets[0] + chunk.sizes[0] if chunk.offsets else 1


def _share(left: Chunk, right: Chunk) -> bool:
    return all(
        a < b + size_b and b < a + size_a
        for a, size_a, b, size_b in zip(left.offsets, left.sizes, right.offsets, right.sizes, strict=True)
    )
