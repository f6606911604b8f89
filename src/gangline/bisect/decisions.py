"""Decisions of a bisection: the side of a commit, from few noisy values, and the next commit. Pure."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, log2
from statistics import fmean
from typing import Literal

from gangline.line.results.band import student_quantile
from gangline.spec.bisect import Side, interval
from gangline.spec.measurements import Better

_TINY = 1e-12
"""Least variance, relative to the squared gap of the ends, because repeated values have none."""
_ODD = 0.001
"""Probability below which values are called unlike an end."""


@dataclass(frozen=True, slots=True)
class _Judgement:
    side: Literal["good", "bad"]
    doubt: float
    """Probability of the other side."""
    odd: bool
    """The values are unlike both ends."""


@dataclass(frozen=True, slots=True)
class EndValues:
    """Values of both ends; `others` are values of other commits, used only for the spread."""

    good: tuple[float, ...]
    bad: tuple[float, ...]
    others: tuple[tuple[float, ...], ...] = ()

    @property
    def _sides(self) -> tuple[tuple[float, ...], ...]:
        return (self.good, self.bad, *self.others)

    @property
    def repeat(self) -> bool:
        """All values of both ends are bitwise equal, so more of them give no information."""
        return len(self.good) > 1 and len({*self.good, *self.bad}) == 1

    def are_apart(self, *, better: Better | None, error: float) -> bool:
        """Whether the bad end is worse, with error probability `error`; without `better`, whether it differs."""
        if not all(map(math.isfinite, self.bad)):
            return True
        gap = fmean(self.bad) - fmean(self.good)
        if gap == 0 or (better is not None and (gap > 0) != (better == "lower")):
            return False
        degrees = sum(len(side) - 1 for side in self._sides)
        if degrees < 1:
            return False
        spread = math.sqrt(sum(map(_squares, self._sides)) / degrees)
        reach = student_quantile(1 - error / 2, degrees) * spread
        return abs(gap) > reach * math.sqrt(1 / len(self.good) + 1 / len(self.bad))

    def are_swapped(self, *, better: Better | None, error: float) -> bool:
        """Whether the bad end is better, with error probability `error`."""
        return better is not None and EndValues(self.bad, self.good, self.others).are_apart(better=better, error=error)

    def judge(self, values: Sequence[float]) -> _Judgement:
        """The more probable side of a commit with these values, at least one."""
        if not all(map(math.isfinite, values)):
            return _Judgement("bad", 0.0, odd=False)
        odds = self._log_odds_good(tuple(values))
        doubt = 1 / (1 + math.exp(min(abs(odds), 700.0)))
        return _Judgement("good" if odds > 0 else "bad", doubt, odd=self._is_odd(values))

    def _log_odds_good(self, values: tuple[float, ...]) -> float:
        if not all(map(math.isfinite, self.bad)):
            return math.inf
        n_good, n_bad, n = len(self.good), len(self.bad), len(values)
        rest = sum(map(_squares, self.others)) + _TINY * (fmean(self.bad) - fmean(self.good)) ** 2
        as_good = _squares(self.good + values) + _squares(self.bad) + rest
        as_bad = _squares(self.good) + _squares(self.bad + values) + rest
        degrees = n_good + n_bad + n - 2 + sum(len(other) - 1 for other in self.others)
        sizes = math.log(n_good * (n_bad + n)) - math.log((n_good + n) * n_bad)
        return 0.5 * sizes + 0.5 * degrees * (math.log(as_bad) - math.log(as_good))

    def _is_odd(self, values: Sequence[float]) -> bool:
        """Whether the values are far from both means, by the spread within groups."""
        groups = [*self._sides, tuple(values)]
        degrees = sum(len(group) - 1 for group in groups)
        if not all(map(math.isfinite, self.bad)) or degrees < 1:
            return False
        spread = math.sqrt(sum(map(_squares, groups)) / degrees) + math.sqrt(_TINY) * abs(
            fmean(self.bad) - fmean(self.good)
        )
        reach = student_quantile(1 - _ODD / 2, degrees) * spread
        middle = fmean(values)
        return all(
            abs(middle - fmean(end)) > reach * math.sqrt(1 / len(values) + 1 / len(end))
            for end in (self.good, self.bad)
        )


def _squares(values: Sequence[float]) -> float:
    """Sum of squared distances from their mean."""
    if len(values) < 2:
        return 0.0
    middle = fmean(values)
    return math.fsum((value - middle) ** 2 for value in values)


def next_index(sides: Sequence[Side]) -> int | None:
    """Index of the open commit nearest to the middle of the interval, the older of two; None if none is left."""
    bisect_interval = interval(sides)
    inside = [place for place in range(bisect_interval.good + 1, bisect_interval.bad) if sides[place] == "unknown"]
    middle = (bisect_interval.good + bisect_interval.bad) / 2
    return min(inside, key=lambda place: (abs(place - middle), place), default=None)


def candidates(sides: Sequence[Side]) -> tuple[int, ...]:
    """Indices that may be the first bad commit; exactly one in the end, unless commits were skipped."""
    bisect_interval = interval(sides)
    return tuple(range(bisect_interval.good + 1, bisect_interval.bad + 1))


def steps_left(sides: Sequence[Side]) -> int:
    """Number of commits that remain to be measured if none is skipped."""
    bisect_interval = interval(sides)
    inside = sum(sides[place] == "unknown" for place in range(bisect_interval.good + 1, bisect_interval.bad))
    return ceil(log2(inside + 1)) if inside else 0


def max_decisions(num_commits: int) -> int:
    """Largest number of decisions of a search over so many commits, without the ends."""
    return max(1, ceil(log2(max(1, num_commits - 1))))


def transient_regressions(sides: Sequence[Side]) -> tuple[int, ...]:
    """Indices of bad commits before the interval, after which the metric was good again."""
    return tuple(place for place in range(interval(sides).good) if sides[place] == "bad")
