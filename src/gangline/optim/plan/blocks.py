"""Blocks of a model by the names of its matrices, in the order in which a forward pass computes them. Pure.

The blocks are the members of one numbered list, as `layers.0`, `layers.1`: of the list that holds most elements, of
equal ones the outer one. What is in none of them is outside, and is needed as the pass begins.
"""

from collections import Counter
from collections.abc import Iterator, Sequence

from gangline.optim.plan.matrix import LogicalMatrix

OUTSIDE = -1
"""The block of what is in none."""


def blocks_of(matrices: Sequence[LogicalMatrix]) -> tuple[int, ...]:
    """Number of the block of each matrix, or `OUTSIDE`."""
    held = Counter[str]()
    for each in matrices:
        held.update({path: int(each.elements.value) for path, _ in _lists(each.fqn)})
    most = max(held, key=lambda path: (held[path], -path.count("."), path), default=None)
    return tuple(dict(_lists(each.fqn)).get(most or "", OUTSIDE) for each in matrices)


def before_use(matrices: Sequence[LogicalMatrix], buckets: Sequence[Sequence[int]]) -> dict[int, float]:
    """Buckets by their place in `buckets`, in the order of first use, each with the share of all elements that is in
    blocks before that use: about the share of a forward pass that is computed by then."""
    block, sizes = blocks_of(matrices), dict[int, float]()
    for each, number in zip(matrices, block, strict=True):
        sizes[number] = sizes.get(number, 0.0) + each.elements.value
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
