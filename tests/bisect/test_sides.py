"""The judgement of a side: its closed form against integration, its errors against the bound that was asked for."""

import math
import random
from math import lgamma

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangline.bisect.decisions import EndValues

ENDS = EndValues((1.0, 1.1, 0.9), (2.0, 2.2, 1.9))


def marginal(groups):
    """log of the likelihood of groups with one spread, by integrating the spread out on a grid; centres by hand."""
    count = sum(map(len, groups))
    squares = sum(sum((x - sum(g) / len(g)) ** 2 for x in g) for g in groups)
    sizes = -0.5 * sum(math.log(len(g)) for g in groups)
    degrees = count - len(groups)
    grid = [math.exp(-8 + 16 * i / 4_000) for i in range(4_001)]
    total = sum(s ** (-degrees) * math.exp(-squares / (2 * s * s)) for s in grid) * 16 / 4_000
    return sizes + math.log(total) - lgamma(1)


@pytest.mark.parametrize("values", [(1.2,), (1.6, 1.5), (1.9, 2.3, 1.4)])
def test_odds_are_those_of_integrated_likelihoods(values):
    good, bad = ENDS.good, ENDS.bad
    wanted = marginal([good + values, bad]) - marginal([good, bad + values])
    judged = ENDS.judge(values)
    assert judged.side == ("good" if wanted > 0 else "bad")
    assert judged.doubt == pytest.approx(1 / (1 + math.exp(abs(wanted))), rel=1e-3)


@given(value=st.floats(-10, 10), shift=st.floats(-5, 5), scale=st.floats(0.1, 10))
def test_units_do_not_matter(value, shift, scale):
    def moved(values):
        return tuple(v * scale + shift for v in values)

    there = EndValues(moved(ENDS.good), moved(ENDS.bad)).judge(moved((value,)))
    here = ENDS.judge((value,))
    assert there.doubt == pytest.approx(here.doubt, rel=1e-4, abs=1e-9)
    assert there.side == here.side or here.doubt > 0.4999


def test_values_that_repeat_to_the_last_bit_leave_no_doubt():
    ends = EndValues((2.0, 2.0), (3.0, 3.0))
    assert ends.judge((2.0,)).side == "good"
    assert ends.judge((3.0,)).doubt < 1e-6
    assert ends.are_apart(better="lower", error=0.01)


def test_a_value_that_is_not_a_number_is_bad():
    assert ENDS.judge((math.nan,)).side == "bad"
    assert EndValues((1.0, 1.1), (math.inf,)).judge((1.05,)).side == "good"


def test_ends_are_apart_only_in_the_direction_that_is_worse():
    assert ENDS.are_apart(better="lower", error=0.05)
    assert not ENDS.are_apart(better="higher", error=0.05)
    assert not EndValues((1.0, 1.1, 0.9), (1.05, 1.0, 0.95)).are_apart(better="lower", error=0.05)


def test_what_does_neither_as_one_end_nor_the_other_is_odd():
    ends = EndValues((1.0, 1.01, 0.99), (2.0, 2.01, 1.99))
    assert ends.judge((1.5, 1.51, 1.49)).odd
    assert ends.judge((5.0, 5.1)).odd
    assert ends.judge((1.5,)).odd
    assert EndValues((1.0, 1.0, 1.0), (2.0, 2.0, 2.0)).judge((1.3,)).odd  # of a program that repeats
    assert not ends.judge((1.003,)).odd
    assert not ends.judge((1.0, 1.02)).odd


@pytest.mark.parametrize("bound", [0.2, 0.05, 0.01])
@pytest.mark.parametrize("gap", [1.0, 2.0, 4.0])
def test_sides_are_wrong_no_more_often_than_the_bound_allows(bound, gap):
    """500 commits of either side, judged one value after another with three seeds of each end; gap in spreads."""
    dice = random.Random(f"{bound} {gap}")
    wrong = 0
    for _ in range(500):
        ends = EndValues(*(tuple(dice.gauss(centre, 1) for _ in range(3)) for centre in (0.0, gap)))
        truth = dice.choice(["good", "bad"])
        values = []
        for _ in range(9):
            values.append(dice.gauss(0.0 if truth == "good" else gap, 1))
            judged = ends.judge(values)
            if judged.doubt <= bound:
                wrong += judged.side != truth
                break
    assert wrong / 500 <= bound + 3 * math.sqrt(bound * (1 - bound) / 500)
