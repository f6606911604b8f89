"""Buckets of gradients, by size or by the blocks of the model, and their cut into one slice per rank. Pure.

Buffers hold matrices in reversed model order: the last layer's first. Blocks are the members of one numbered list, as
`layers.0`, `layers.1`: of the list that holds most elements, of equal ones the outer one. What is in none of them is
outside, and is needed as a forward pass begins.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from gangline.errors import ConfigError
from gangline.optim.plan.matrix import LogicalMatrix
from gangline.units import Elements


@dataclass(frozen=True, kw_only=True, slots=True)
class GradientBuffer:
    """Matrices of one bucket, in the order of the buffer."""

    places: tuple[int, ...]
    """Places of its matrices in model order."""
    sizes: tuple[int, ...]
    """Elements of each."""

    @property
    def boundaries(self) -> tuple[int, ...]:
        """0 and the end of every tensor, in elements."""
        return tuple(accumulate(self.sizes, initial=0))


def buckets(matrices: Sequence[LogicalMatrix], limit: Elements | None) -> tuple[GradientBuffer, ...]:
    """Buckets of reversed model order, each closed once it reaches `limit`; None: one for all."""
    found: list[list[int]] = [[]]
    size = 0.0
    for at in reversed(range(len(matrices))):
        if limit is not None and size >= limit.value:
            found.append([])
            size = 0.0
        found[-1].append(at)
        size += matrices[at].elements.value
    return tuple(_buffer(matrices, each) for each in found if each)


def block_buckets(matrices: Sequence[LogicalMatrix]) -> tuple[GradientBuffer, ...]:
    """A bucket for each block, and one for what is outside, in reversed model order."""
    found: dict[int, list[int]] = {}
    for at, block in reversed(list(enumerate(blocks_of(matrices)))):
        found.setdefault(block, []).append(at)
    return tuple(_buffer(matrices, places) for places in found.values())


def _buffer(matrices: Sequence[LogicalMatrix], places: Sequence[int]) -> GradientBuffer:
    return GradientBuffer(places=tuple(places), sizes=tuple(int(matrices[at].elements.value) for at in places))


def alpha_greedy(sizes: Sequence[Sequence[int]], ranks: int, alpha: float) -> tuple[tuple[int, ...], ...]:
    """Rank of each matrix, by bucket and place in it: one slice of whole matrices per rank, as Canzona's paper cuts.

    Slices aim between equal slices (0) and equal totals over all buckets (1).

    Args:
        sizes: Of each matrix of each bucket, in the order of the buffer: elements, or costs.
        ranks: Slices of a bucket.
        alpha: From 0 to 1.

    Raises:
        ConfigError: `alpha` is out of its range.
    """
    if not 0 <= alpha <= 1:
        raise ConfigError(f"alpha is from 0 to 1, found {alpha}")
    target, loads = sum(map(sum, sizes)) / ranks, [0.0] * ranks
    owners: list[tuple[int, ...]] = [()] * len(sizes)
    for at in sorted(range(len(sizes)), key=lambda at: -sum(sizes[at])):
        bounds = list(accumulate(sizes[at], initial=0))
        cuts = _nearest_cuts(bounds, _targets(bounds[-1], loads, target, alpha))
        slices = [bounds[stop] - bounds[start] for start, stop in pairwise(cuts)]
        loads = [load + size for load, size in zip(loads, slices, strict=True)]
        owners[at] = tuple(rank for rank, (start, stop) in enumerate(pairwise(cuts)) for _ in range(start, stop))
    return tuple(owners)


def _targets(size: float, loads: Sequence[float], target: float, alpha: float) -> list[float]:
    """Where slices of a bucket should end."""
    equal = size / len(loads)
    lacks = [max(0, target - load) for load in loads]
    lacking = sum(lacks)
    filled = [(lack / lacking) * size if lacking else 0 for lack in lacks]
    return list(accumulate((1 - alpha) * equal + alpha * each for each in filled))


def _nearest_cuts(bounds: Sequence[int], targets: Sequence[float]) -> list[int]:
    """Places of the boundaries nearest to each target, of two the lower; the last is the end. Targets do not fall."""
    cuts = [0]
    for target in targets[:-1]:
        above = min(bisect_left(bounds, target), len(bounds) - 1)
        below = max(above - 1, 0)
        cuts.append(min((below, above), key=lambda at: (abs(bounds[at] - target), at)))
    return [*cuts, len(bounds) - 1]


OUTSIDE = -1
"""The block of what is in none."""


def blocks_of(matrices: Sequence[LogicalMatrix]) -> tuple[int, ...]:
    """Number of the block of each matrix, or `OUTSIDE`."""
    held = Counter[str]()
    for matrix in matrices:
        held.update({path: int(matrix.elements.value) for path, _ in _lists(matrix.fqn)})
    most = max(held, key=lambda path: (held[path], -path.count("."), path), default=None)
    return tuple(dict(_lists(logical_matrix.fqn)).get(most or "", OUTSIDE) for logical_matrix in matrices)


def before_use(matrices: Sequence[LogicalMatrix], buckets: Sequence[Sequence[int]]) -> dict[int, float]:
    """Buckets by their place in `buckets`, in the order of first use, each with the share of all elements that is in
    blocks before that use: about the share of a forward pass that is computed by then."""
    block, sizes = blocks_of(matrices), dict[int, float]()
    for matrix, number in zip(matrices, block, strict=True):
        sizes[number] = sizes.get(number, 0.0) + matrix.elements.value
    total, upto, before = sum(sizes.values()), 0.0, {OUTSIDE: 0.0}
    for number in sorted(sizes.keys() - {OUTSIDE}):
        before[number] = upto / total
        upto += sizes[number]
    first = {at: min(block[place] for place in places) for at, places in enumerate(buckets)}
    return {at: before[first[at]] for at in sorted(first, key=lambda at: (first[at], at))}


def _lists(fqn: str) -> Iterator[tuple[str, int]]:
    """Path of each numbered list that a name is in, and its number there."""
    parts = fqn.split(".")
    for at, part in enumerate(parts[:-1]):
        if part.isascii() and part.isdigit():
            yield ".".join([*parts[:at], "*"]), int(part)
