"""A makespan that no assignment of work to ranks can be below: the certificate of an owner map. Pure."""

from collections import Counter
from collections.abc import Sequence
from itertools import accumulate
from math import gcd

MOST_BITS = 1 << 24
"""Bits of a set of reachable sums; where costs have no common measure, the bound does without it."""


def least_makespan(costs: Sequence[float], ranks: int) -> float:
    """No assignment of `costs` to `ranks` has a smaller largest load.

    The largest of mean, largest cost and pigeonhole sums; of whole-number costs the smallest sum of some of them that
    is as large.
    """
    floor = max(max(costs, default=0), _pigeonhole(costs, ranks))
    if not any(costs) or not all(isinstance(each, int) for each in costs):
        return max(floor, sum(costs) / ranks)
    whole = [int(each) for each in costs]
    return _smallest_sum(whole, max(int(floor), -(-sum(whole) // ranks)))


def _pigeonhole(costs: Sequence[float], ranks: int) -> float:
    """Least load of some rank: it has k + 1 of the k R + 1 largest items, at least the k + 1 smallest of them."""
    falling = sorted(costs, reverse=True)
    sums = [0, *accumulate(falling)]
    return max((sums[last + 1] - sums[last - last // ranks] for last in range(0, len(falling), ranks)), default=0)


def _smallest_sum(costs: list[int], least: int) -> int:
    """Smallest sum of some of `costs` that is `least` or more."""
    unit = gcd(*costs)
    floor = -(-least // unit)
    size = floor + max(costs) // unit
    if size > MOST_BITS:
        return least
    mask = (1 << (size + 1)) - 1
    reachable = 1
    for value, count in Counter(costs).items():
        for taken in _doublings(count):
            reachable |= (reachable << (value // unit * taken)) & mask
    above = reachable >> floor
    return (floor + (above & -above).bit_length() - 1) * unit if above else least


def _doublings(count: int) -> list[int]:
    """Numbers whose sums of some are all of 0 to `count`."""
    powers = [1 << power for power in range((count + 1).bit_length() - 1)]
    rest = count - sum(powers)
    return [*powers, rest] if rest else powers
