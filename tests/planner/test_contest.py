"""Who wins: bounds before costs, kinds of GPU before axes, axes before costs, and of equals the first."""

import pytest

from gangline.planner.budget import PlanReason
from gangline.planner.contest import Contender, TimeBounds, winner


def entry(name: str, cost: float = 1.0, *, axes: int = 1, kinds: int = 1, over: float | None = None) -> Contender[str]:
    excess = None if over is None else PlanReason("late", "", over)
    return Contender(plan=name, cost=TimeBounds.exactly(cost), axes=axes, kinds=kinds, excess=excess)


@pytest.mark.parametrize(
    ("entries", "best"),
    [
        ([entry("cheap", 1.0, over=1.1), entry("within", 9.0)], "within"),
        ([entry("far", 1.0, over=3.0), entry("near", 9.0, over=2.0)], "near"),
        ([entry("both", 1.0, kinds=2), entry("alone", 1.04, axes=3)], "alone"),
        ([entry("both", 1.0, kinds=2), entry("alone", 1.06)], "both"),
        ([entry("three", 1.0, axes=3), entry("one", 1.04, axes=1)], "one"),
        ([entry("slow", 1.04), entry("fast", 1.0)], "fast"),
        ([entry("first"), entry("second")], "first"),
    ],
)
def test_the_first_criterion_that_tells_two_plans_apart_decides(entries, best):
    assert winner(entries, band=0.05) == best


def test_costs_within_the_band_may_be_left_out():
    assert winner([entry("first", 1.04), entry("second", 1.0)], band=0.05, by_cost=False) == "first"


def test_a_plan_that_is_clearly_below_at_one_end_alone_beats_nothing():
    wide = Contender(plan="wide", cost=TimeBounds(2.0, 0.5), axes=2)
    assert winner([wide, entry("simple", 1.0)], band=0.05) == "simple"
    wide = Contender(plan="wide", cost=TimeBounds(2.0, 1.2), axes=1)
    assert winner([wide, entry("less", 1.0, axes=2)], band=0.05) == "less"
