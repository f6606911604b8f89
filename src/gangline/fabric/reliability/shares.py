"""Samples of a step for replicas of unlike speed: the split that finishes first, what it saves, and a bound. Pure.

Only replicas (`dp_replicate`) may take unlike shares: the loss is a weighted sum, whose mean over the step stays exact.
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from heapq import heapify, heapreplace
from math import floor

GAIN = 0.95
"""Other shares are worth it if the slowest replica then needs at most this share of its time."""


@dataclass(frozen=True, slots=True)
class Split:
    """A step of one split, in the unit of time of its speeds."""

    shares: tuple[int, ...]
    """Samples by replica."""
    seconds: float
    """Time until the last replica is done."""
    even_seconds: float
    """The same for equal shares."""
    bound_seconds: float
    """No split takes less: all are done at the same time."""

    @property
    def is_worth_it(self) -> bool:
        """It saves more than the noise of what speeds were measured by."""
        return self.seconds <= GAIN * self.even_seconds


def split_by_speed(samples: int, speeds: Sequence[float], *, least: int = 1) -> Split:
    """The fastest split of `samples`.

    Args:
        samples: Of a step, at least `least` for each replica.
        speeds: Samples by time of each replica, above 0.
        least: Of one replica: each of its shards needs one.
    """
    shares = by_speed(speeds, samples, least=least)
    return Split(
        shares=shares,
        seconds=_last_done(shares, speeds),
        even_seconds=_last_done(even_shares(samples, len(speeds)), speeds),
        bound_seconds=samples / sum(speeds),
    )


def by_speed(speeds: Sequence[float], samples: int, *, least: int) -> tuple[int, ...]:
    """Split `samples` in proportion to `speeds`, each at least `least`; each goes to the replica that finishes first.

    No other split is done sooner. Proportional shares that are rounded by their remainders can take longer: 12 samples
    at speeds 0.5, 1, 0.6, 0.8, 1, 0.9 are then (1, 3, 2, 2, 2, 2), which takes 11 % longer than (1, 3, 1, 2, 3, 2).
    """
    sure = (samples - least * len(speeds)) / sum(speeds)  # until then, no more is done than there is
    shares = [max(least, floor(sure * speed)) for speed in speeds]
    done = [((share + 1) / speed, place) for place, (share, speed) in enumerate(zip(shares, speeds, strict=True))]
    heapify(done)
    for _ in range(samples - sum(shares)):
        _, place = done[0]
        shares[place] += 1
        heapreplace(done, ((shares[place] + 1) / speeds[place], place))
    return tuple(shares)


def even_shares(samples: int, replicas: int) -> tuple[int, ...]:
    """Samples of a step for each of `replicas`; sizes differ by at most one."""
    return tuple(samples * (each + 1) // replicas - samples * each // replicas for each in range(replicas))


def _last_done(shares: Sequence[int], speeds: Sequence[float]) -> float:
    return max(share / speed for share, speed in zip(shares, speeds, strict=True))


Seconds = Callable[[int], float]
"""Duration of a step of one replica with so many passes; it does not fall as they grow."""


def deal_passes(passes: int, replicas: tuple[int, int], seconds: tuple[Seconds, Seconds]) -> tuple[int, int]:
    """Passes of all replicas of the first and of the second of two kinds, so that the last replica is first done.

    Replicas of a kind are equally fast, so that they take equal passes but for one; no other deal is done sooner.

    Args:
        passes: Of a step, at least one for each replica.
        replicas: Of each kind.
        seconds: Of a replica of each kind, with what does not depend on its passes.
    """
    first, second = replicas

    def both(most: int) -> tuple[int, int]:
        """Passes of both kinds, with at most so many on a replica of the first kind; the second takes the rest."""
        taken = min(first * most, passes - second)
        return taken, passes - taken

    def last_done(most: int) -> float:
        return max(each(-(-taken // count)) for each, taken, count in zip(seconds, both(most), replicas, strict=True))

    def is_first_last(most: int) -> bool:
        return seconds[0](most) >= seconds[1](-(-both(most)[1] // second))

    upper = -(-(passes - second) // first)
    crossing = bisect_left(range(1, upper), True, key=is_first_last) + 1
    return both(min((each for each in (crossing - 1, crossing) if each), key=last_done))
