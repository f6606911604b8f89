"""The least makespan, by exhausting what ranks can hold: slow, for few kinds of items."""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import product


def brute_force_makespan(costs: Sequence[float], ranks: int) -> float:
    """Of every assignment the best; up to 10 items."""
    return min(
        max(sum(cost for cost, owner in zip(costs, owners, strict=True) if owner == rank) for rank in range(ranks))
        for owners in product(range(ranks), repeat=len(costs))
    )


def least_makespan_by_patterns(costs: Sequence[int], ranks: int, *, low: float, high: int) -> int:
    """Smallest capacity from `low` to `high` that holds all; `high` is known to."""
    kinds = Counter(costs)
    sums = sorted({sum(n * size for n, size in zip(p, kinds, strict=True)) for p in _patterns(kinds, high)})
    candidates = [each for each in sums if low <= each <= high]
    best = high
    left, right = 0, len(candidates)
    while left < right:
        middle = (left + right) // 2
        if _holds(kinds, ranks, candidates[middle]):
            best, right = candidates[middle], middle
        else:
            left = middle + 1
    return best


def _patterns(kinds: Counter[int], capacity: int) -> Iterator[tuple[int, ...]]:
    """How many of each kind one rank can hold."""

    def grow(sizes: list[int], room: int) -> Iterator[tuple[int, ...]]:
        if not sizes:
            yield ()
            return
        for count in range(min(kinds[sizes[0]], room // sizes[0]) + 1):
            for rest in grow(sizes[1:], room - count * sizes[0]):
                yield (count, *rest)

    yield from grow(list(kinds), capacity)


def _holds(kinds: Counter[int], ranks: int, capacity: int) -> bool:
    """Rank after rank: of all counts of the first kinds that can be placed, the most of the last kind beside them."""
    counts = list(kinds.values())
    full = _maximal(list(kinds), counts, list(_patterns(kinds, capacity)), capacity)
    placed = {tuple(0 for _ in counts[:-1]): 0}
    for _ in range(ranks):
        following: dict[tuple[int, ...], int] = {}
        for have, last in placed.items():
            for pattern in full:
                key = tuple(min(a + b, most) for a, b, most in zip(have, pattern, counts, strict=False))
                following[key] = max(following.get(key, 0), min(last + pattern[-1], counts[-1]))
        placed = following
    return placed.get(tuple(counts[:-1]), 0) >= counts[-1]


def _maximal(
    sizes: list[int], counts: list[int], patterns: list[tuple[int, ...]], capacity: int
) -> list[tuple[int, ...]]:
    """Patterns that no further item fits into."""
    return [
        pattern
        for pattern in patterns
        if all(
            have == most or sum(n * s for n, s in zip(pattern, sizes, strict=True)) + size > capacity
            for have, size, most in zip(pattern, sizes, counts, strict=True)
        )
    ]
