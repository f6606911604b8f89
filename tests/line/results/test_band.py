"""Bands, against a table of Student's t and a slow integral of its density."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangline.line.results import band
from gangline.spec.measurements import Band

TABLE = {1: 12.7062, 2: 4.30265, 3: 3.18245, 4: 2.77645, 5: 2.57058, 9: 2.26216, 10: 2.22814, 30: 2.04227, 120: 1.97993}
"""t(0.975), as printed in statistical tables."""


def integral(t: float, degrees: int, pieces: int = 20_000) -> float:
    """Probability below `t` by the trapezoid rule on the density: obviously right, and slow."""
    scale = math.exp(math.lgamma((degrees + 1) / 2) - math.lgamma(degrees / 2)) / math.sqrt(degrees * math.pi)
    values = [scale * (1 + (t * i / pieces) ** 2 / degrees) ** (-(degrees + 1) / 2) for i in range(pieces + 1)]
    return 0.5 + t / pieces * (math.fsum(values) - (values[0] + values[-1]) / 2)


@pytest.mark.parametrize(("degrees", "wanted"), TABLE.items())
def test_quantile_is_that_of_the_tables(degrees, wanted):
    assert band.student_quantile(0.975, degrees) == pytest.approx(wanted, rel=1e-5)


@pytest.mark.parametrize("degrees", range(1, 13))
@pytest.mark.parametrize("probability", [0.6, 0.9, 0.975])
def test_quantile_inverts_the_integral(degrees, probability):
    t = band.student_quantile(probability, degrees)
    assert integral(t, degrees) == pytest.approx(probability, abs=1e-6)


values = st.lists(st.floats(-1e6, 1e6), min_size=3, max_size=12)


@given(values=values, floor=st.floats(0, 5))
def test_band_follows_its_formula_and_never_falls_below_the_floor(values, floor):
    found = band.learn_band(values, floor_percent=floor, origin="r")
    n = len(values)
    mean = sum(values) / n
    s = math.sqrt(sum((v - mean) ** 2 for v in values) / (n - 1))
    spread = band.student_quantile(0.975, n - 1) * s * math.sqrt(1 + 1 / n)
    assert found.n == n
    assert found.center == pytest.approx(mean, rel=1e-9, abs=1e-6)
    assert found.half == pytest.approx(max(abs(mean) * floor / 100, spread), rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("bad", [[1.0, 2.0], [], [1.0, 2.0, math.nan], [1.0, math.inf, 2.0]])
def test_no_band_from_too_few_values_or_from_no_numbers(bad):
    assert band.learn_band(bad, floor_percent=1, origin="r") is None


@pytest.mark.parametrize(
    ("value", "better", "worse"),
    [
        (1.2, "lower", True),
        (0.8, "lower", False),
        (0.8, "higher", True),
        (1.2, "higher", False),
        (1.05, "lower", False),
    ],
)
def test_only_the_bad_side_is_worse(value, better, worse):
    assert band.is_worse(value, Band(center=1.0, half=0.1, n=3, origin="r"), better) is worse


@pytest.mark.parametrize("better", ["lower", "higher"])
def test_no_number_is_worse_than_any_band(better):
    assert band.is_worse(math.nan, Band(center=1.0, half=0.1, n=3, origin="r"), better)


@given(outside=st.lists(st.booleans(), max_size=70))
def test_curve_leaves_where_three_places_in_a_row_are_outside(outside):
    bands = [Band(center=1.0, half=0.1, n=3, origin="r")] * len(outside)
    found = band.first_point_outside([2.0 if out else 1.0 for out in outside], bands)
    wanted = next((i for i in range(len(outside) - 2) if all(outside[i : i + 3])), None)
    assert found == wanted


def test_new_runs_of_the_same_kind_stay_inside_about_19_times_of_20():
    import random

    draw = random.Random(7)
    inside = 0
    for _ in range(2000):
        learned = band.learn_band([draw.gauss(2.4, 0.01) for _ in range(4)], floor_percent=0, origin="r")
        inside += learned.low <= draw.gauss(2.4, 0.01) <= learned.high
    assert 0.93 <= inside / 2000 <= 0.97
