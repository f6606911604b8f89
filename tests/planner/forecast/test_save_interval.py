"""The interval between saves against the slowest version: time lost by every interval, tried one by one."""

from math import exp

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gangline.planner.forecast.save_interval import SaveCosts, steps_between_saves

seconds = st.floats(min_value=0.01, max_value=100.0)


def lost(costs, steps):
    """Expected seconds for a second of work, failures being exponential (Daly 2006, restarts for free)."""
    work, mean = steps * costs.step_seconds, costs.seconds_between_failures
    return mean * (exp((work + costs.blocking_seconds) / mean) - 1) / work


@settings(max_examples=60, deadline=None)
@given(cost=seconds, step=seconds, ratio=st.floats(min_value=20.0, max_value=1e4))
def test_no_other_interval_loses_noticeably_less(cost, step, ratio):
    costs = SaveCosts(blocking_seconds=cost, step_seconds=step, seconds_between_failures=ratio * max(cost, step))
    found = steps_between_saves(costs, most=2000)
    best = min(lost(costs, steps) for steps in range(1, 2001))
    assert lost(costs, found) <= 1.01 * best


def test_first_order_is_young():
    costs = SaveCosts(blocking_seconds=0.5, step_seconds=1.0, seconds_between_failures=10_000.0)
    assert steps_between_saves(costs, most=10**6) == pytest.approx((2 * 0.5 * 10_000) ** 0.5, abs=1)


@pytest.mark.parametrize(("cost", "between", "steps"), [(50.0, 10.0, 10), (0.0, 10.0, 1), (1.0, 1e9, 500)])
def test_interval_stays_within_bounds(cost, between, steps):
    costs = SaveCosts(blocking_seconds=cost, step_seconds=1.0, seconds_between_failures=between)
    assert steps_between_saves(costs, most=500) == steps
