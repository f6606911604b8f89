"""The budget gate: yes, no, and unknown with its reason."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangline.errors import ConfigError
from gangline.planner.budget import check, check_measured, excess
from gangline.spec.config.line import PlanTable
from gangline.spec.config.site import LimitsTable
from gangline.spec.forecast import Forecast

NONE, OPEN = PlanTable(), LimitsTable()


def test_no_bound_is_a_yes():
    gate = check(NONE, OPEN, Forecast())
    assert (gate.name, gate.verdict, gate.reason) == ("budget", "yes", "no bound is set")


@pytest.mark.parametrize(
    ("bounds", "limits"),
    [(PlanTable(budget_gpu_hours=10), OPEN), (NONE, LimitsTable(gpu_hours_per_run=10))],
    ids=["line", "site"],
)
def test_bound_of_line_or_site_decides(bounds, limits):
    assert check(bounds, limits, Forecast(gpu_hours=9)).verdict == "yes"
    assert check(bounds, limits, Forecast(gpu_hours=11)).verdict == "no"
    assert check(bounds, limits, Forecast(gpu_hours=9.8), band=0.05).verdict == "no"
    unknown = check(bounds, limits, Forecast())
    assert unknown.verdict == "unknown"
    assert "no forecast yet" in unknown.reason


def test_a_forecast_that_no_run_corrected_refuses_no_plan_and_promises_nothing():
    for seconds in (4, 6):
        gate = check(PlanTable(deadline_seconds=5), OPEN, Forecast(wall_seconds=seconds, origin="rates measured"))
        assert gate.verdict == "unknown"
        assert f"the first forecast says {seconds}" in gate.reason
    late = Forecast(wall_seconds=6, origin="calibrated n=1")
    assert check(PlanTable(deadline_seconds=5), OPEN, late).verdict == "no"


def test_beyond_a_budget_of_nothing_the_cheaper_forecast_is_nearer():
    cheap, dear = (excess(PlanTable(budget_money=0), OPEN, Forecast(money=money)) for money in (409.0, 423.0))
    assert cheap.ratio < dear.ratio


def test_a_deadline_is_shown_as_a_time():
    late = excess(PlanTable(deadline_seconds=3600), OPEN, Forecast(wall_seconds=46_010.0))
    assert late.words == "time: 12 h 46 min forecast, at most 1 h 0 min"


def test_a_no_outweighs_an_unknown():
    gate = check(PlanTable(budget_gpu_hours=10, deadline_seconds=5), OPEN, Forecast(gpu_hours=11))
    assert gate.verdict == "no"
    assert "GPU-hours: 11 forecast, above 10" in gate.reason


@pytest.mark.parametrize("name", ["budget_gpu_hours", "budget_money"])
def test_bound_above_the_site_is_a_mistake_of_the_file(name):
    limits = LimitsTable(gpu_hours_per_run=10, money_per_run=10)
    with pytest.raises(ConfigError, match=f"plan.{name}: wanted at most the site's limit of 10"):
        check(PlanTable(**{name: 11}), limits, Forecast())


@given(bound=st.floats(0, 1e6), known=st.floats(0, 1e6), band=st.floats(0, 1))
def test_verdict_is_the_comparison(bound, known, band):
    gate = check(PlanTable(budget_money=bound), OPEN, Forecast(money=known), band=band)
    assert (gate.verdict == "no") == (known * (1 + band) > bound)


def test_every_seed_costs_as_much_as_the_first():
    bounds = PlanTable(budget_gpu_hours=10, deadline_seconds=100)
    forecast = Forecast(gpu_hours=4, wall_seconds=90)
    assert check(bounds, OPEN, forecast, seeds=2).verdict == "yes"
    gate = check(bounds, OPEN, forecast, seeds=3)
    assert (gate.verdict, gate.reason) == ("no", "GPU-hours: 12 forecast, above 10; 3 seeds are included")


@pytest.mark.parametrize(("seconds", "verdict", "said"), [(59.0, "no", "above"), (14.0, "yes", "within")])
def test_what_was_measured_is_judged_in_place_of_a_forecast(seconds, verdict, said):
    bounds, seen = PlanTable(deadline_seconds=15), Forecast(wall_seconds=seconds, origin="measured n=200")
    gate = check_measured(bounds, OPEN, seen, Forecast())
    assert (gate.name, gate.verdict, gate.evidence["origin"]) == ("budget", verdict, "measured n=200")
    assert gate.reason == f"time: {seconds:.0f} s measured, {said} 15 s"


def test_bound_of_which_nothing_was_measured_keeps_its_forecast():
    bounds, seen = PlanTable(budget_money=10, deadline_seconds=15), Forecast(wall_seconds=9.0)
    gate = check_measured(bounds, OPEN, seen, Forecast(money=4.0, wall_seconds=99.0), seeds=3)
    assert (gate.verdict, gate.reason) == ("no", "money: 12 forecast, above 10")
    assert check_measured(bounds, OPEN, replace(seen, money=9.0), Forecast(money=4.0), seeds=3).verdict == "yes"
    assert check_measured(NONE, OPEN, seen, Forecast()).reason == "no bound is set"
