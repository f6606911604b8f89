"""Two servers struck in turns: how much slower is one of them? Arithmetic alone.

Turns are short and change in the order A B B A, so what else the machine does falls on both alike, and a load that
grows cancels. Each turn of the candidate is compared with the neighbouring one of the base by the median of its
answers; the mean over all pairs is the ratio, and their spread says how far it is known.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median, stdev

ORDER = "ABBA"
PER_TURN = 5
"""Requests of one turn."""
GROUPS = 20
"""Repetitions of the order: 200 requests to each server."""
FEWEST_GROUPS = 4
SHARE = 0.5
"""Rate of arrivals as a share of what the base answers one after the other."""
SURE = 1.7
"""Standard errors that a ratio must be above 1 for the candidate to be called slower: 95 in 100, on one side."""


@dataclass(frozen=True, slots=True)
class Ratio:
    """Candidate over base."""

    value: float
    error: float
    """Standard error of its logarithm."""

    @property
    def is_surely_above_one(self) -> bool:
        """Whether chance does not explain it."""
        return math.log(self.value) > SURE * self.error


def time_ratio(candidate: Sequence[Sequence[float]], base: Sequence[Sequence[float]]) -> Ratio:
    """Ratio of times of answers, from turns in the order of `ORDER`; at least two of each."""
    pairs = [math.log(median(ours) / median(theirs)) for ours, theirs in zip(candidate, base, strict=True)]
    return Ratio(math.exp(fmean(pairs)), stdev(pairs) / math.sqrt(len(pairs)))


def percentile_99(seconds: Sequence[float]) -> float:
    """The time within which 99 of 100 were answered."""
    ranked = sorted(seconds)
    return ranked[math.ceil(0.99 * len(ranked)) - 1]


def spread_of_99(turns: Sequence[Sequence[float]], parts: int = 4) -> float:
    """Half of the range of that time over `parts` parts of the turns: what differs by itself."""
    size = max(1, len(turns) // parts)
    found = [
        percentile_99([each for turn in turns[start : start + size] for each in turn])
        for start in range(0, len(turns), size)
    ]
    return (max(found) - min(found)) / 2


def num_groups(seconds: float, budget: float) -> int:
    """Repetitions that take at most `budget` where an answer takes `seconds`; never fewer than `FEWEST_GROUPS`."""
    one = len(ORDER) * PER_TURN * seconds / SHARE
    return max(FEWEST_GROUPS, min(GROUPS, int(budget / one)))
