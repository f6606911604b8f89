"""Who wins: plans within the bounds, of these what nothing is clearly below, then the fewest kinds of GPU and axes.

A cost is an interval, as it is not known before a run how much traffic hides behind computing; of what has one number
both ends are equal, and it is in the band unless the least cost and the band's share of it are below it.
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Generic, TypeVar

from gangline.planner.budget import PlanReason

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class TimeBounds:
    """Bounds of one plan; of what was measured both are equal."""

    most: float
    """Seconds, or what they cost, with as much communication hidden behind computing as the site grants."""
    least: float
    """Seconds with as much hidden as there is computing to hide it."""

    @classmethod
    def exactly(cls, cost: float) -> "TimeBounds":
        """Both ends of a cost that is one number."""
        return cls(cost, cost)

    def times(self, factor: float) -> "TimeBounds":
        """Both bounds multiplied by `factor`."""
        return TimeBounds(self.most * factor, self.least * factor)

    def is_clearly_below(self, other: "TimeBounds", band: float) -> bool:
        """Whatever is hidden, by more than the share `band`; a strict partial order."""
        return self.most * (1 + band) < other.most and self.least * (1 + band) < other.least

    def beyond(self, other: "TimeBounds") -> float:
        """Share by which it is more than `other` at the upper bound; below 0: less."""
        return self.most / other.most - 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Contender(Generic[T]):
    """A plan that ranks hold and run, and whose cost is known."""

    plan: T
    cost: TimeBounds
    axes: int
    """Axes with more than one rank."""
    kinds: int = 1
    """Kinds of GPU."""
    excess: PlanReason | None = None
    """The bound that it is furthest beyond; None: it is within all."""


def winner(entries: Sequence[Contender[T]], *, band: float, by_cost: bool = True) -> T:
    """The plan that is chosen; where none is within the bounds, the nearest.

    Args:
        entries: One or more; of equals the first wins.
        band: Share within which costs count as equal.
        by_cost: Of equally simple plans the cheapest wins; False: the first, as their costs are too wide to tell.
    """
    if not any(entry.excess is None for entry in entries):
        return min(entries, key=lambda entry: entry.excess.ratio if entry.excess else 0.0).plan
    within = {number: entry.cost for number, entry in enumerate(entries) if entry.excess is None}
    best = [entries[number] for number in unbeaten(within, band)]
    return min(
        best, key=lambda contender: (contender.kinds, contender.axes, contender.cost.most if by_cost else 0.0)
    ).plan


def unbeaten(costs: Mapping[T, TimeBounds], band: float) -> list[T]:
    """Those that nothing is clearly below, in their order."""
    by_most = sorted(costs.values(), key=lambda cost: cost.most)
    most = [each.most * (1 + band) for each in by_most]
    least = list(accumulate((each.least * (1 + band) for each in by_most), min))
    found = []
    for each, bounds in costs.items():
        below = bisect_left(most, bounds.most)
        if below == 0 or least[below - 1] >= bounds.least:
            found.append(each)
    return found


@dataclass(frozen=True, kw_only=True, slots=True)
class SearchSummary:
    """What a choice was made from."""

    num_candidates: int
    """Each a layout with one way to run it."""
    num_weighed: int
    """Those that were weighed; the others lose by their bounds."""
    num_fit: int
    """Those of them that fit."""
    bound_seconds: float | None
    """No step on so many GPUs takes less; None: no rates are known."""
    settings: dict[str, str] = field(default_factory=dict)
    """How each layout would be run: `fsdp-16 b4s`."""
    struck: dict[str, int] = field(default_factory=dict)
    """Products of degrees that a rule left out, by the rule."""
