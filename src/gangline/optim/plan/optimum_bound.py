"""A makespan that no assignment of work to ranks can be below: the certificate of an owner map. Pure."""

from collections import Counter
from collections.abc import Sequence
from itertools import accumulate
from math import gcd

MOST_BITS = 1 << 24
"""Of a set of reachable sums; where costs have no common measure, the bound does without it."""


def least_makespan(costs: Sequence[float], ranks: int) -> float:
    """No assignment of `costs` to `ranks` has a smaller largest load.

    The largest of mean, largest cost and pigeonhole sums; of whole-number costs the smallest sum of some of them that
    is as large.
    """
    least = max(sum(costs) / ranks, max(costs, default=0), _pigeonhole(costs, ranks))
    if not all(isinstance(each, int) for each in costs) or least != least:
        return least
    return _smallest_sum([int(each) for each in costs], _whole_mean(costs, ranks, least))


def _whole_mean(costs: Sequence[float], ranks: int, least: float) -> int:
    """`least` as a whole number: the mean is rounded up exactly."""
    return max(-(-int(sum(costs)) // ranks), int(least) if least > sum(costs) / ranks else 0)


def _pigeonhole(costs: Sequence[float], ranks: int) -> float:
    """Of the k R + 1 largest items some rank has k + 1: at least the sum of the k + 1 smallest of these."""
    falling = sorted(costs, reverse=True)
    sums = [0, *accumulate(falling)]
    return max((sums[last + 1] - sums[last - last // ranks] for last in range(0, len(falling), ranks)), default=0)


def _smallest_sum(costs: list[int], least: int) -> int:
    """Of some of `costs`, `least` or more."""
    unit = gcd(*costs)
    floor = -(-least // unit)
    size = floor + max(costs, default=0) // unit
    if not unit or size > MOST_BITS:
        return least
    mask = (1 << (size + 1)) - 1
    reachable = 1
    for value, count in Counter(costs).items():
        step = 1
        while count > 0:
            taken = min(step, count)
            reachable |= (reachable << (value // unit * taken)) & mask
            count -= taken
            step *= 2
    above = reachable >> floor
    return (floor + (above & -above).bit_length() - 1) * unit if above else least
