"""Where to look next, and what the answers so far mean. Pure: sides of commits go in, a place comes out.

A history is a row of commits, oldest first, its first known good and its last known bad. The search keeps to the last
place where good turns into bad, so a history that was bad in between still gets a true answer, with a note.
"""

from collections.abc import Sequence
from math import ceil, log2

from gangline.spec.bisect import Side, interval


def next_place(sides: Sequence[Side]) -> int | None:
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


def most_decisions(num_commits: int) -> int:
    """How many sides a search over so many commits decides at most, both ends left out."""
    return max(1, ceil(log2(max(1, num_commits - 1))))


def came_and_went(sides: Sequence[Side]) -> tuple[int, ...]:
    """Places before the interval that are bad: it got worse there, and better again."""
    return tuple(place for place in range(interval(sides).good) if sides[place] == "bad")
