"""What a search costs: forecast of one trial, of all of them, and whether another one may start. Pure.

A trial starts only if what was spent, the forecasts of those that run, its own and that of the confirmation are within
the budget. So a search exceeds its budget by no more than the error of the forecasts of trials that ran together.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from gangline.spec.search import SearchLimits, SearchRequest, Trial

SLACK = 1.75
"""Steps of asynchronous halving over those in whole rounds: early trials lack competitors, later ones are good."""
_EPSILON = 1e-9


@dataclass(frozen=True, kw_only=True, slots=True)
class SearchForecast:
    """Expected cost of a search."""

    trial_hours: float | None
    """Device-hours of one whole trial; None: nothing is known before the first has ended."""
    low_hours: float | None
    """All trials as halving in whole rounds leaves them, and the confirmation."""
    high_hours: float | None
    confirm_hours: float | None


def forecast(request: SearchRequest, limits: SearchLimits, *, trial_hours: float | None) -> SearchForecast:
    """The cost of all trials and of the confirmation."""
    if trial_hours is None:
        return SearchForecast(trial_hours=None, low_hours=None, high_hours=None, confirm_hours=None)
    low, high = shares(request)
    confirm = confirm_hours(limits, trial_hours)
    return SearchForecast(
        trial_hours=trial_hours,
        low_hours=limits.trials * low * trial_hours + confirm,
        high_hours=limits.trials * high * trial_hours + confirm,
        confirm_hours=confirm,
    )


def confirm_hours(limits: SearchLimits, trial_hours: float) -> float:
    """Winner and base, each with as many seeds."""
    return 2 * limits.confirm_seeds * trial_hours


def shares(request: SearchRequest) -> tuple[float, float]:
    """Least and most of a whole trial's steps that one trial is expected to train."""
    if request.pruner == "population":
        return 1 / (len(request.rungs) + 1), 1 / (len(request.rungs) + 1)
    if not request.rungs or request.pruner == "none":
        return 1.0, 1.0
    low, before, alive = 0.0, 0, 1.0
    for step in (*request.rungs, request.steps):
        low += alive * (step - before) / request.steps
        before, alive = step, alive / request.reduction
    if request.pruner == "median":
        return 0.5 + 0.5 * low, 1.0
    return low, min(1.0, (2.0 if request.pruner == "hyperband" else SLACK) * low)


def trial_hours(trials: Sequence[Trial], *, steps: int, otherwise: float | None) -> float | None:
    """Device-hours of a whole trial: the mean of those that trained to the end, else scaled from the others' steps."""
    whole = [
        trial.device_hours for trial in trials if trial.state == "ended" and not trial.taken and trial.device_hours
    ]
    if whole:
        return fmean(whole)
    parts = [trial for trial in trials if trial.device_hours and trial.step and not trial.taken]
    if otherwise is None and parts:
        return fmean(part.device_hours / part.step for part in parts) * steps
    return otherwise


def may_start(
    budget: float | None,
    *,
    spent: float,
    running: Sequence[float | None],
    trial: float | None,
    confirmation: float | None = None,
) -> bool:
    """Whether one more trial fits; without a forecast only one runs at a time, which gives one.

    Args:
        budget: Device-hours; None: no limit.
        spent: Those of trials that have ended.
        running: Forecast of each trial that runs, as it was when that one started; None: there was none.
        trial: Forecast of the next one; a running one is forecast no lower.
        confirmation: What the answer will cost.
    """
    if budget is None:
        return True
    if trial is None:
        return not running and spent < budget
    begun = sum(max(each or 0.0, trial) for each in running)
    return spent + begun + trial + (confirmation or 0.0) <= budget * (1 + _EPSILON)
