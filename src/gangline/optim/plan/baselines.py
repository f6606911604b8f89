"""Published ways to deal matrices to ranks, reproduced to compare with. Pure.

Buffers hold matrices in reversed model order: the last layer's first. `layerwise_2026_01` deals all parameters.
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from math import inf

from gangline.errors import ConfigError
from gangline.optim.plan.blocks import blocks_of
from gangline.optim.plan.matrix import LogicalMatrix
from gangline.units import Elements


def round_robin(count: int, ranks: int) -> list[int]:
    """Owner of each of `count` matrices in model order, one after the other."""
    return [at % ranks for at in range(count)]


def ping_pong(sizes: Sequence[float], ranks: int) -> list[int]:
    """Owner by size, smallest first, in rows that run forth and back (Megatron-LM pull request 2241)."""
    owners = [0] * len(sizes)
    for place, at in enumerate(sorted(range(len(sizes)), key=sizes.__getitem__)):
        row, column = divmod(place, ranks)
        owners[at] = ranks - 1 - column if row % 2 else column
    return owners


def layerwise_2026_01(parameters: Sequence[Elements], ranks: int) -> list[int]:
    """Owner of each parameter, AdamW's too: NVIDIA's `layerwise_optimizer` of January 2026."""
    return ping_pong([each.value for each in parameters], ranks)


@dataclass(frozen=True, kw_only=True, slots=True)
class GradientBuffer:
    """Matrices of one bucket, in the order of the buffer."""

    places: tuple[int, ...]
    """Of its matrices in model order."""
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


def equal_cut(bucket: GradientBuffer, ranks: int) -> list[int]:
    """`asc`: the rank in whose equal slice of the buffer a matrix starts."""
    total = sum(bucket.sizes)
    return [start * ranks // total for start in bucket.boundaries[:-1]]


@dataclass(frozen=True, kw_only=True, slots=True)
class SlicedBuckets:
    """Buckets cut into one slice of whole matrices per rank."""

    owners: tuple[tuple[int, ...], ...]
    """Rank of each matrix, by bucket and place in it."""
    padded: float
    """Elements sent when every slice is as long as the largest of its bucket, over all elements."""


def alpha_greedy(
    sizes: Sequence[Sequence[int]], ranks: int, alpha: float, *, number: Callable[[float], float] = float
) -> SlicedBuckets:
    """Slices that aim between equal slices (0) and equal totals over all buckets (1), as Canzona's paper states them.

    Args:
        sizes: Of each matrix of each bucket, in the order of the buffer: elements, or costs.
        ranks: Slices of a bucket.
        alpha: From 0 to 1.
        number: Type of the targets. `float` computes as the released code does; where a target is in the middle of
            two boundaries its rounding decides. `fractions.Fraction` decides for the lower, as the text has it.

    Raises:
        ConfigError: `alpha` is out of its range.
    """
    if not 0 <= alpha <= 1:
        raise ConfigError(f"alpha is from 0 to 1, found {alpha}")
    share = number(alpha)
    total = sum(map(sum, sizes))
    target, loads = number(total) / ranks, [number(0)] * ranks
    owners: list[tuple[int, ...]] = [()] * len(sizes)
    padded = 0
    for at in sorted(range(len(sizes)), key=lambda at: -sum(sizes[at])):
        bounds = list(accumulate(sizes[at], initial=0))
        cuts = _nearest_cuts(bounds, _targets(number(bounds[-1]), loads, target, share))
        slices = [bounds[stop] - bounds[start] for start, stop in pairwise(cuts)]
        loads = [load + size for load, size in zip(loads, slices, strict=True)]
        padded += ranks * max(slices)
        owners[at] = tuple(rank for rank, (start, stop) in enumerate(pairwise(cuts)) for _ in range(start, stop))
    return SlicedBuckets(owners=tuple(owners), padded=padded / total)


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


def kept_slices(buffers: Sequence[GradientBuffer], ranks: int, sliced: SlicedBuckets) -> tuple[tuple[int, ...], ...]:
    """Owners that the released code keeps: `sliced` only where all buckets together are more even than equal cuts."""
    equal = tuple(tuple(equal_cut(each, ranks)) for each in buffers)
    return sliced.owners if _largest(buffers, sliced.owners, ranks) < _largest(buffers, equal, ranks) else equal


def _largest(buffers: Sequence[GradientBuffer], owners: Sequence[Sequence[int]], ranks: int) -> int:
    """Elements of the fullest rank."""
    loads = [0] * ranks
    for buffer, mine in zip(buffers, owners, strict=True):
        for owner, size in zip(mine, buffer.sizes, strict=True):
            loads[owner] += size
    return max(loads)


def contiguous(costs: Sequence[float], ranks: int) -> list[int]:
    """Owners by the cut of one buffer into slices with the smallest largest cost."""
    sums = sorted({total for start in range(len(costs)) for total in accumulate(costs[start:])})
    least = bisect_left(sums, True, key=lambda capacity: _slice_count(costs, capacity) <= ranks)
    return _slices(costs, sums[least])


def _slice_count(costs: Sequence[float], capacity: float) -> float:
    """Slices of at most `capacity`; infinite: one cost is larger."""
    return _slices(costs, capacity)[-1] + 1 if max(costs) <= capacity else inf


def _slices(costs: Sequence[float], capacity: float) -> list[int]:
    """Slice of each cost when every slice is filled up to `capacity`."""
    owners, filled, rank = [], 0.0, 0
    for cost in costs:
        if filled + cost > capacity:
            filled, rank = 0, rank + 1
        filled += cost
        owners.append(rank)
    return owners


def shape_batch_makespan(matrices: Sequence[LogicalMatrix], costs: Sequence[float], ranks: int) -> float:
    """Largest load where the matrices of each shape are dealt out in rounds, the last one padded (`microsoft/dion`)."""
    of_shape: dict[tuple[int, int], tuple[int, float]] = {}
    for matrix, cost in zip(matrices, costs, strict=True):
        count, _ = of_shape.get(matrix.shape, (0, 0))
        of_shape[matrix.shape] = (count + 1, cost)
    return sum(-(-count // ranks) * cost for count, cost in of_shape.values())
