"""The interval between saves against the slowest version: time lost by every interval, tried one by one."""

from math import expm1, inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gangline.fabric.reliability.interval import retuned_steps, steps_between_saves
from gangline.planner.cost.interruptions import save_costs_of
from gangline.spec.mesh import Mesh
from gangline.spec.plan import SaveCosts
from gangline.spec.profile import MeasuredRun

seconds = st.floats(min_value=0.01, max_value=100.0)


def lost(costs, steps):
    """Expected seconds for a second of work, failures being exponential (Daly 2006, restarts for free)."""
    work, mean = steps * costs.step_seconds, costs.seconds_between_failures
    exponent = (work + costs.blocking_seconds) / mean
    return mean * expm1(exponent) / work if exponent < 700 else inf


@settings(max_examples=60, deadline=None)
@given(cost=seconds, step=seconds, ratio=st.floats(min_value=0.5, max_value=1e4))
def test_no_other_interval_loses_less(cost, step, ratio):
    costs = SaveCosts(blocking_seconds=cost, step_seconds=step, seconds_between_failures=ratio * max(cost, step))
    found = steps_between_saves(costs, most=2000)
    best = min(range(1, 2001), key=lambda steps: lost(costs, steps))
    assert abs(found - best) <= 1, "of the two neighbours of an interval in whole steps"


def test_first_order_is_young():
    costs = SaveCosts(blocking_seconds=0.5, step_seconds=1.0, seconds_between_failures=10_000.0)
    assert steps_between_saves(costs, most=10**6) == pytest.approx((2 * 0.5 * 10_000) ** 0.5, abs=1)


@pytest.mark.parametrize(("cost", "between", "steps"), [(50.0, 10.0, 10), (0.0, 10.0, 1), (1.0, 1e9, 500)])
def test_interval_stays_within_bounds(cost, between, steps):
    costs = SaveCosts(blocking_seconds=cost, step_seconds=1.0, seconds_between_failures=between)
    assert steps_between_saves(costs, most=500) == steps


def measured(**values):
    return MeasuredRun(
        run="r", strategy="ddp", mesh=Mesh(dp_replicate=2), device="cpu", precision="fp32", global_batch=8,
        micro_batch=4, **{"step_seconds": 1.0, "train_seconds": 1000.0, "save_seconds": 2.0} | values,
    )  # fmt: skip


def test_time_between_failures_is_that_of_all_runs():
    assert save_costs_of([measured(failures=1), measured(failures=3), measured()]).seconds_between_failures == 750.0
    assert save_costs_of([measured()]) is None


def test_interval_of_the_reference_case():
    costs = SaveCosts(blocking_seconds=7.0, step_seconds=10.0, seconds_between_failures=11_135.0)
    assert steps_between_saves(costs, most=1000) == 39


@pytest.mark.parametrize(
    ("interruptions", "elapsed", "mean"),
    [
        (0, 0, None),
        (0, 1900, None),
        (0, 2000, 12_000),
        (1, 10_000, None),
        (1, 0, 5000),
        (3, 6000, 4000),
        (1, 2e5, 1.05e5),
    ],
)
def test_interval_follows_the_mean_time_once_it_moved_by_a_fifth(interruptions, elapsed, mean):
    costs = SaveCosts(blocking_seconds=7.0, step_seconds=1.0, seconds_between_failures=10_000.0)
    planned = steps_between_saves(costs, most=5000)
    found = retuned_steps(costs, planned=planned, most=5000, interruptions=interruptions, elapsed_seconds=elapsed)
    moved = SaveCosts(blocking_seconds=7.0, step_seconds=1.0, seconds_between_failures=mean or 10_000.0)
    assert found == steps_between_saves(moved, most=5000)
    assert (found == planned) == (mean is None)
