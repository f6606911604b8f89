"""Decisions of a bisection: on which side a commit lies, by few noisy values, and which commit is next. Pure."""

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
"""Of the gap between the ends, squared: values that repeat to the last bit have no spread at all."""
_ODD = 0.001
"""Chance at which values so far off both ends would occur."""


@dataclass(frozen=True, slots=True)
class Judgement:
    side: Literal["good", "bad"]
    doubt: float
    """Chance that it is the other one."""
    odd: bool
    """It does neither as one end nor as the other."""


@dataclass(frozen=True, slots=True)
class EndValues:
    """Values of the good and the bad end; `others` are groups of one commit each, for the spread alone."""

    good: tuple[float, ...]
    bad: tuple[float, ...]
    others: tuple[tuple[float, ...], ...] = ()

    @property
    def _sides(self) -> tuple[tuple[float, ...], ...]:
        return (self.good, self.bad, *self.others)

    @property
    def repeat(self) -> bool:
        """More values of the ends would say nothing new: they repeat to the last bit, and are equal."""
        return len(self.good) > 1 and len({*self.good, *self.bad}) == 1

    def are_apart(self, *, better: Better | None, error: float) -> bool:
        """Is the bad end worse than the good one, but for a chance of `error`? Any difference is, without `better`."""
        if not all(map(math.isfinite, self.bad)):
            return True
        gap = fmean(self.bad) - fmean(self.good)
        if gap == 0 or (better is not None and (gap > 0) != (better == "lower")):
            return False
        degrees = sum(len(each) - 1 for each in self._sides)
        if degrees < 1:
            return False
        spread = math.sqrt(sum(map(_squares, self._sides)) / degrees)
        reach = student_quantile(1 - error / 2, degrees) * spread
        return abs(gap) > reach * math.sqrt(1 / len(self.good) + 1 / len(self.bad))

    def are_swapped(self, *, better: Better | None, error: float) -> bool:
        """Is the bad end the better one, but for a chance of `error`?"""
        return better is not None and EndValues(self.bad, self.good, self.others).are_apart(better=better, error=error)

    def judge(self, values: Sequence[float]) -> Judgement:
        """The likelier side of a commit with these values, at least one."""
        if not all(map(math.isfinite, values)):
            return Judgement("bad", 0.0, odd=False)
        odds = self._log_odds_good(tuple(values))
        doubt = 1 / (1 + math.exp(min(abs(odds), 700.0)))
        return Judgement("good" if odds > 0 else "bad", doubt, odd=self._is_odd(values))

    def _log_odds_good(self, values: tuple[float, ...]) -> float:
        if not all(map(math.isfinite, self.bad)):
            return math.inf
        n_good, n_bad, n = len(self.good), len(self.bad), len(values)
        rest = sum(map(_squares, self.others)) + _TINY * (fmean(self.bad) - fmean(self.good)) ** 2
        as_good = _squares(self.good + values) + _squares(self.bad) + rest
        as_bad = _squares(self.good) + _squares(self.bad + values) + rest
        degrees = n_good + n_bad + n - 2 + sum(len(each) - 1 for each in self.others)
        sizes = math.log(n_good * (n_bad + n)) - math.log((n_good + n) * n_bad)
        return 0.5 * sizes + 0.5 * degrees * (math.log(as_bad) - math.log(as_good))

    def _is_odd(self, values: Sequence[float]) -> bool:
        """Far from both centres, by the spread within groups; a bad end that is no number is never near."""
        if not all(map(math.isfinite, self.bad)) or len(values) < 2:
            return False
        groups = [*self._sides, tuple(values)]
        degrees = sum(len(each) - 1 for each in groups)
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
    """The open commit nearest to the middle of the interval, the older of two; None: there is none left to ask."""
    found = interval(sides)
    inside = [place for place in range(found.good + 1, found.bad) if sides[place] == "unknown"]
    middle = (found.good + found.bad) / 2
    return min(inside, key=lambda place: (abs(place - middle), place), default=None)


def candidates(sides: Sequence[Side]) -> tuple[int, ...]:
    """Places that may be the first bad one: exactly one once nothing inside was skipped."""
    found = interval(sides)
    return tuple(range(found.good + 1, found.bad + 1))


def steps_left(sides: Sequence[Side]) -> int:
    """How many more commits have to be asked, where none has to be skipped."""
    found = interval(sides)
    inside = sum(sides[place] == "unknown" for place in range(found.good + 1, found.bad))
    return ceil(log2(inside + 1)) if inside else 0


def max_decisions(num_commits: int) -> int:
    """How many sides a search over so many commits decides at most, both ends left out."""
    return max(1, ceil(log2(max(1, num_commits - 1))))


def transient_regressions(sides: Sequence[Side]) -> tuple[int, ...]:
    """Places before the interval that are bad: it got worse there, and better again."""
    return tuple(place for place in range(interval(sides).good) if sides[place] == "bad")
