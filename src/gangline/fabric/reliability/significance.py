"""How far a rank must stand out: scores against robust noise, scaled to the number of ranks. Pure.

A rank's own time over `w` steps is compared with its peers' by z = (x - median) / (1.4826 MAD). A gang of N ranks is
judged N·86,400 / (w·step) times a day, so the score that one false alarm in 100 days allows grows with N.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, inf, sqrt
from statistics import NormalDist, median

FALSE_ALARMS_PER_DAY = 0.01
MAD_TO_SIGMA = 1.4826
_MEDIAN_ERROR = 1.2533
"""Ratio of the standard errors of median and mean, for normal values."""
_JUMP_FREEDOM = 0.25
"""Degrees of freedom that one jump adds: a median of deviations uses 37 % of them, and consecutive jumps overlap."""
_CHANCE = 2.0
"""Standard errors by which one rank's jumps may exceed its peers' by chance."""
_FIRST_SIGMA, _FIRST_FREEDOM = 0.03, 6.0
"""Noise of a window that a gang is taken to have until it has shown its own, and its weight in degrees of freedom."""


def mad_sigma(values: Sequence[float]) -> float:
    """Robust standard deviation: 1.4826 times the median distance from the median."""
    middle = median(values)
    return MAD_TO_SIGMA * median(abs(each - middle) for each in values)


def critical_score(num_judged: int, *, window_seconds: float, freedom: float = inf) -> float:
    """Score t from which one of `num_judged` values is reported: num_judged·86400/window·(1 - Phi(t)) <= 0.01 a day.

    Args:
        num_judged: Values that are judged at the end of each window.
        window_seconds: Between two judgements.
        freedom: Degrees of freedom of the noise that the score is divided by; the fewer, the larger the score must be,
            as Student's distribution has it.

    Source:
        Wallace, "Bounds on normal approximations to Student's and the chi-square distributions" (1959), for `freedom`.
    """
    judged_a_day = num_judged * 86_400 / max(window_seconds, 1e-3)
    normal = -NormalDist().inv_cdf(min(FALSE_ALARMS_PER_DAY / judged_a_day, 0.5))
    if freedom == inf:
        return normal
    scaled = (normal * (8 * freedom + 3) / (8 * freedom + 1)) ** 2 / freedom
    return sqrt(freedom * (exp(min(scaled, 600.0)) - 1))


@dataclass(frozen=True, slots=True)
class Noise:
    """What the ratio of a rank that is not slow does."""

    sigma: float
    """Deviation from one window to the next."""
    spread: float
    """Lasting differences between peers; 0 where they are too few to be known."""
    freedom: float
    """Degrees of freedom of `sigma`."""

    @staticmethod
    def of_jumps(jumps: Sequence[float], *, typical: float, peers: int, spread: float) -> "Noise":
        """Noise of one rank.

        Args:
            jumps: Changes of its ratio from window to window.
            typical: Median size of such a change over all peers: noise is at least that of the peers.
            peers: Number of ranks that are compared.
            spread: Robust deviation of the peers' ratios within a window, noise included.
        """
        own = sqrt(sum(each**2 for each in jumps) / len(jumps)) / (1 + _CHANCE / sqrt(len(jumps))) if jumps else 0.0
        usual = MAD_TO_SIGMA * typical / sqrt(2)
        shown = max(usual, own / sqrt(2))
        freedom = _JUMP_FREEDOM * (peers - 1) * len(jumps)
        whole = freedom + _FIRST_FREEDOM
        sigma = sqrt((freedom * shown**2 + _FIRST_FREEDOM * _FIRST_SIGMA**2) / whole)
        return Noise(sigma, sqrt(max(0.0, spread**2 - usual**2)), whole)

    def of_median(self, windows: int) -> float:
        """Standard error of the median over so many windows."""
        error = _MEDIAN_ERROR if windows > 2 else 1.0
        return sqrt((error * self.sigma) ** 2 / windows + self.spread**2)
