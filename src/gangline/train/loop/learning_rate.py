"""Learning rate as a ratio to the peak, by step. Pure: it depends on the number of the step only."""

import math
from collections.abc import Callable
from numbers import Real

from gangline.errors import ConfigError
from gangline.spec.plan import Schedule
from gangline.train.task import import_code

MOST_CHECKED = 2_000
"""Steps for which a function is checked before a training begins."""


def rate_function(schedule: Schedule) -> Callable[[int, int], float]:
    """(step, steps) -> ratio of the rate of `step`, from 1, to the peak; local, the same on every rank.

    Raises:
        ConfigError: `kind` names a missing function; when it is called, that it did not return a finite ratio of 0 or
            more.
    """
    if schedule.function is None:
        return lambda step, steps: rate_ratio(schedule, step, steps=steps)
    own, name = _load(schedule.function), schedule.function

    def checked(step: int, steps: int) -> float:
        ratio = own(step, steps)
        if isinstance(ratio, bool) or not isinstance(ratio, Real) or not 0 <= float(ratio) < math.inf:
            raise ConfigError(
                f"train.schedule.kind: {name}({step}, {steps}): wanted a finite ratio to the peak of 0 or more,"
                f" found {ratio!r:.80}"
            )
        return float(ratio)

    return checked


def check_function(name: str, *, steps: int) -> None:
    """Check the function `name` for a training of `steps` steps, at evenly spaced steps.

    Raises:
        ConfigError: It is missing, fails, does not return a finite ratio, or returns another one in a second call.
    """
    ratio_of = rate_function(Schedule(kind=name))
    count = min(steps, MOST_CHECKED)
    steps_checked = [1 + number * (steps - 1) // max(1, count - 1) for number in range(count)]
    try:
        first = [ratio_of(step, steps) for step in steps_checked]
        again = [ratio_of(step, steps) for step in reversed(steps_checked)]
    except ConfigError:
        raise
    except Exception as error:
        raise ConfigError(f"train.schedule.kind: {name} fails: {type(error).__name__}: {error}") from error
    for step, one, other in zip(steps_checked, first, reversed(again), strict=True):
        if one != other:
            raise ConfigError(
                f"train.schedule.kind: {name}({step}, {steps}): wanted one ratio, found {one:g} and then {other:g};"
                " a schedule must depend on the step alone, so that a resumed training has the same rates"
            )


def rate_ratio(schedule: Schedule, step: int, *, steps: int) -> float:
    """Ratio of the rate of `step` (from 1) to the peak: linear warm-up, then down to `final_ratio` at step `steps`."""
    if step <= schedule.warmup_steps:
        return step / schedule.warmup_steps
    if schedule.kind == "constant":
        return 1.0
    done = (step - schedule.warmup_steps) / max(1, steps - schedule.warmup_steps)
    left = 1.0 - done if schedule.kind == "linear" else 0.5 * (1.0 + math.cos(math.pi * done))
    return schedule.final_ratio + (1.0 - schedule.final_ratio) * left


def _load(name: str) -> Callable[[int, int], object]:
    module_name, _, function_name = name.partition(":")
    own = getattr(import_code(module_name, f"train.schedule.kind {name!r}"), function_name, None)
    if not callable(own):
        raise ConfigError(f"train.schedule.kind {name!r}: {module_name} has no function {function_name!r}")
    return own  # type: ignore[no-any-return]  # callable is all that is known
