"""Bounds of a step time, and the plans that no other one is clearly below."""

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class TimeBounds:
    """Bounds of one plan; of what was measured both are equal."""

    most: float
    """Seconds, or what they cost, with as much communication hidden behind computing as the site grants."""
    least: float
    """Seconds with as much hidden as there is computing to hide it."""

    def times(self, factor: float) -> "TimeBounds":
        """Both bounds multiplied by `factor`."""
        return TimeBounds(self.most * factor, self.least * factor)

    def is_clearly_below(self, other: "TimeBounds", band: float) -> bool:
        """Whatever is hidden, by more than the share `band`; a strict partial order."""
        return self.most * (1 + band) < other.most and self.least * (1 + band) < other.least

    def beyond(self, other: "TimeBounds") -> float:
        """Share by which it is more than `other` at the upper bound; below 0: less."""
        return self.most / other.most - 1


def unbeaten(costs: Mapping[T, TimeBounds], band: float) -> list[T]:
    """Those that nothing is clearly below, in their order."""
    by_most = sorted(costs.values(), key=lambda each: each.most)
    most = [each.most * (1 + band) for each in by_most]
    least = list(accumulate((each.least * (1 + band) for each in by_most), min))
    found = []
    for each, bounds in costs.items():
        below = bisect_left(most, bounds.most)
        if below == 0 or least[below - 1] >= bounds.least:
            found.append(each)
    return found
