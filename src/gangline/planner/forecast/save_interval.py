"""Checkpoint interval: the steps between saves that lose the least time, from save cost and failure rate. Pure."""

from collections.abc import Sequence
from statistics import median

from gangline.fabric.interval import steps_between_saves
from gangline.spec.config.line import Line
from gangline.spec.plan import SaveCosts
from gangline.spec.profile import MeasuredRun

_SAVES_A_RUN = 4
_FEWEST_STEPS_BETWEEN, _MOST_STEPS_BETWEEN = 10, 500


def save_costs_of(history: Sequence[MeasuredRun]) -> SaveCosts | None:
    """Costs of the runs in `history`, which are alike; None while none of them failed, or none saved."""
    saving = [each for each in history if each.save_seconds is not None and each.train_seconds]
    failures = sum(each.failures for each in saving)
    if not failures:
        return None
    return SaveCosts(
        blocking_seconds=median(each.save_seconds or 0.0 for each in saving),
        step_seconds=median(each.step_seconds for each in saving),
        seconds_between_failures=sum(each.train_seconds or 0.0 for each in saving) / failures,
    )


def save_every(line: Line, costs: SaveCosts | None = None) -> int:
    """Steps from one save to the next: the line's own number; `every = "auto"` loses least by what earlier runs cost.

    Before one of them failed it is a quarter of the steps, within [10, 500] and at most all of them.
    """
    requested, steps = line.train.checkpoint.every, line.train.steps
    if requested != "auto":
        return requested
    if costs is not None:
        return steps_between_saves(costs, most=steps)
    return min(max(steps // _SAVES_A_RUN, _FEWEST_STEPS_BETWEEN), _MOST_STEPS_BETWEEN, steps)
