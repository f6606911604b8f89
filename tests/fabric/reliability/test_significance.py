"""Scores that a slow rank must reach, against the figures of the specification, exact quantiles and simulation."""

import random
from itertools import pairwise
from math import inf, sqrt

import pytest

from gangline.fabric.reliability.stragglers import Noise, critical_score, mad_sigma


@pytest.mark.parametrize(("ranks", "score"), [(64, 5.22), (1024, 5.71), (16_384, 6.16)])
def test_score_grows_with_the_gang_so_that_false_alarms_stay_one_in_a_hundred_days(ranks, score):
    assert critical_score(ranks, window_seconds=10 * 5.0) == pytest.approx(score, abs=0.005)


@pytest.mark.parametrize(("sigma", "seen"), [(0.01, 0.023), (0.03, 0.070)])
def test_smallest_delay_that_a_thousand_ranks_show(sigma, seen):
    """A delay is reported with 95 % probability where it exceeds the score by 1.645 standard errors."""
    score = critical_score(1024, window_seconds=50)
    assert (score + 1.645) * sigma / sqrt(10) == pytest.approx(seen, abs=0.0005)


@pytest.mark.parametrize(("freedom", "exact"), [(10, 10.516), (30, 6.119), (200, 5.048), (inf, 4.892)])
def test_little_known_noise_demands_students_quantile(freedom, exact):
    """`exact` solves betainc(v/2, 1/2, v/(v + t²)) / 2 = 5e-7 with mpmath."""
    window_seconds = 86_400 * 5e-7 / 0.01
    assert critical_score(1, window_seconds=window_seconds, freedom=freedom) == pytest.approx(exact, rel=0.02)


def test_median_deviation_is_the_deviation_of_normal_values():
    draw = random.Random(1)
    assert mad_sigma([draw.gauss(5, 0.2) for _ in range(4000)]) == pytest.approx(0.2, rel=0.06)


def test_noise_of_a_gang_that_was_seen_long_is_its_own_and_before_that_three_percent():
    draw = random.Random(2)
    row = [draw.gauss(1, 0.01) for _ in range(2000)]
    jumps = [after - before for before, after in pairwise(row)]
    typical = sorted(map(abs, jumps))[len(jumps) // 2]
    assert Noise.of_jumps(jumps, typical=typical, peers=64, spread=0.0).sigma == pytest.approx(0.01, rel=0.1)
    assert Noise.of_jumps([0.0], typical=0.0, peers=2, spread=0.0).sigma == pytest.approx(0.03, rel=0.05)


def test_lasting_differences_do_not_average_out_and_noise_does():
    assert Noise(0.02, 0.0, 10.0).of_median(1) == 0.02
    assert Noise(0.02, 0.01, 10.0).of_median(10**6) == pytest.approx(0.01, rel=1e-3)
    draw = random.Random(3)
    medians = [sorted(draw.gauss(0, 1) for _ in range(25))[12] for _ in range(4000)]
    assert Noise(1.0, 0.0, 10.0).of_median(25) == pytest.approx(sqrt(sum(m * m for m in medians) / 4000), rel=0.05)
