"""Budget of a search: what it may exceed, what it is forecast to cost."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.search.functions import FunctionRuns, MemoryStore, make_driver, make_request

from gangline.search import budget
from gangline.spec.search import SearchLimits

positive = st.floats(min_value=0.01, max_value=100)


def simulate(seed):
    """A search whose trials cost other than forecast: hours over the budget, most error of trials that ran together."""
    draw = random.Random(seed)
    parallel, known = draw.randint(1, 8), draw.random() < 0.7
    request = make_request(seed=seed, sampler="random", pruner=draw.choice(("none", "halving")))
    costs = {}

    def hours(settings):
        key = tuple(sorted(settings.items()))
        return costs.setdefault(key, draw.uniform(0.5, 1.5))

    class Watched(FunctionRuns):
        def start(self, run, settings, *, again):
            super().start(run, settings, again=again)
            forecast = budget.trial_hours(driver._study.trials(), steps=request.steps, otherwise=1.0 if known else None)
            begun[run] = hours(settings) if forecast is None else hours(settings) - forecast

    begun, limit, least = {}, draw.uniform(2.0, 9.0), 1.0 if known else None
    limits = {"trials": 14, "parallel": parallel, "budget_hours": limit, "trial_hours": least}
    driver = make_driver(MemoryStore(), request, Watched(request, hours=hours), **limits)
    view = driver.run()
    errors = sorted((max(0.0, each) for each in begun.values()), reverse=True)
    return view.spent_hours - limit, sum(errors[:parallel]), view


def within_forecast(seed):
    over, error, view = simulate(seed)
    assert over <= error + 1e-9, (seed, over, error)
    assert view.ending in ("budget", "trials")
    return view


def test_a_search_exceeds_its_budget_by_no_more_than_forecasts_err():
    endings = {within_forecast(seed).ending for seed in range(6)}
    assert "budget" in endings


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_no_search_of_five_hundred_exceeds_its_budget():
    for seed in range(500):
        within_forecast(seed)


@given(limit=positive, spent=positive, trial=positive, running=st.lists(positive), confirmation=positive)
def test_a_trial_starts_only_if_all_that_is_begun_fits(limit, spent, trial, running, confirmation):
    fits = budget.may_start(limit, spent=spent, running=running, trial=trial, confirmation=confirmation)
    assert fits == (spent + sum(max(each, trial) for each in running) + trial + confirmation <= limit * (1 + 1e-9))
    assert budget.may_start(None, spent=spent, running=running, trial=trial)
    assert budget.may_start(limit, spent=0, running=running, trial=None) == (not running)


def test_a_forecast_counts_what_halving_leaves_and_the_confirmation():
    limits = SearchLimits(trials=40, parallel=8, confirm_seeds=3)
    whole = budget.forecast(make_request(pruner="none", rungs=()), limits, trial_hours=2.0)
    assert (whole.low_hours, whole.high_hours, whole.confirm_hours) == (40 * 2.0 + 12.0, 40 * 2.0 + 12.0, 12.0)
    halved = budget.forecast(make_request(steps=90, rungs=(10, 30)), limits, trial_hours=2.0)
    assert halved.low_hours == pytest.approx(40 * 2.0 * (10 + 20 / 3 + 60 / 9) / 90 + 12.0)
    assert halved.low_hours < halved.high_hours < whole.high_hours
    unknown = budget.forecast(make_request(), limits, trial_hours=None)
    assert unknown.low_hours is None


def test_a_budget_that_ends_a_search_is_raised_and_it_goes_on():
    store, request = MemoryStore(), make_request(pruner="none", rungs=())
    runs = FunctionRuns(request)
    first = make_driver(store, request, runs, budget_hours=3.5, trial_hours=1.0).run()
    assert (first.ending, len(first.trials), first.spent_hours) == ("budget", 3, 3.0)
    second = make_driver(store, request, runs, budget_hours=5.0, trial_hours=1.0).run()
    assert (second.ending, len(second.trials)) == ("budget", 5)


def test_the_confirmation_is_kept_back():
    request = make_request(pruner="none", rungs=())
    view = make_driver(MemoryStore(), request, budget_hours=8.0, trial_hours=1.0, confirm_seeds=3).run()
    assert (view.ending, len(view.trials)) == ("budget", 2)
