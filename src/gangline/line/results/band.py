"""Noise bands, learned from several seeds of one commit, and whether a value is outside its band. Pure.

center +- max(floor, t(0.975, n-1) * s * sqrt(1 + 1/n)): the 95 % prediction interval of *one* new run. A curve has one
band at each of its 64 points, and a run is outside if three points in a row are.
"""

import math
from collections.abc import Mapping, Sequence
from statistics import fmean, stdev

from gangline.spec.measurements import Band

MIN_SEEDS = 3
RUN_OF_POINTS = 3


def learn_band(values: Sequence[float], *, floor_percent: float, origin: str) -> Band | None:
    """Band of one new run; None for fewer than three values or if one is not finite.

    Args:
        values: One per seed.
        floor_percent: The half width is at least this share of the center.
        origin: Run that measured the values.
    """
    n = len(values)
    if n < MIN_SEEDS or not all(map(math.isfinite, values)):
        return None
    center = fmean(values)
    spread = student_quantile(0.975, n - 1) * stdev(values) * math.sqrt(1 + 1 / n)
    return Band(center=center, half=max(abs(center) * floor_percent / 100, spread), n=n, origin=origin)


def band_of_tolerance(value: float, *, percent: float, origin: str) -> Band:
    """Band that a gate's `tolerance_percent` allows around the value of one run."""
    return Band(center=value, half=abs(value) * percent / 100, n=1, origin=origin)


def learn_curve_bands(
    by_seed: Mapping[str, Sequence[float]], *, floor_percent: float, origin: str
) -> tuple[Band | None, ...]:
    """Band at each point of the curves, up to the length of the shortest."""
    curves = list(by_seed.values())
    if len(curves) < MIN_SEEDS:
        return ()
    points = zip(*curves, strict=False)
    return tuple(learn_band(values, floor_percent=floor_percent, origin=origin) for values in points)


def is_worse(value: float, band: Band, better: str) -> bool:
    """Whether `value` is outside the band on the bad side; a value that is not finite always is."""
    if not math.isfinite(value):
        return True
    return value > band.high if better == "lower" else value < band.low


def first_point_outside(values: Sequence[float], bands: Sequence[Band | None], *, better: str = "lower") -> int | None:
    """Index of the first of three points in a row that are worse than their band; None if there are none."""
    streak = 0
    for index, (value, band) in enumerate(zip(values, bands, strict=False)):
        streak = streak + 1 if band is not None and is_worse(value, band, better) else 0
        if streak == RUN_OF_POINTS:
            return index - RUN_OF_POINTS + 1
    return None


def student_quantile(probability: float, degrees: int) -> float:
    """Quantile of Student's t distribution, by bisection.

    Source:
        Abramowitz and Stegun, "Handbook of Mathematical Functions" (1964), 26.7.3 and 26.7.4: finite sums for
        integer degrees of freedom.
    """
    assert degrees >= 1, degrees
    assert 0.5 < probability < 1, probability
    low, high = 0.0, 1.0
    while _below(high, degrees) < probability:
        low, high = high, high * 2
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if _below(middle, degrees) < probability else (low, middle)
    return (low + high) / 2


def _below(t: float, degrees: int) -> float:
    """Probability that Student's t is below `t` >= 0."""
    theta = math.atan(t / math.sqrt(degrees))
    cosine, sine = math.cos(theta), math.sin(theta)
    if degrees % 2:
        series = _series(cosine, 1, degrees - 2, start=cosine) if degrees > 1 else 0.0
        inside = 2 / math.pi * (theta + sine * series)
    else:
        inside = sine * _series(cosine, 0, degrees - 2, start=1.0)
    return 0.5 + inside / 2


def _series(cosine: float, first: int, last: int, *, start: float) -> float:
    """start * (1 + (first+1)/(first+2) cos^2 + (first+1)(first+3)/((first+2)(first+4)) cos^4 + ...), up to cos^last."""
    term = total = start
    for power in range(first + 2, last + 1, 2):
        term *= cosine * cosine * (power - 1) / power
        total += term
    return total
