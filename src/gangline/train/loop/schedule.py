"""Learning rate over steps, as a ratio to the peak. Pure."""

import math

from gangline.spec.plan import Schedule


def rate_ratio(schedule: Schedule, step: int, *, steps: int) -> float:
    """Ratio of the rate of `step` (from 1) to the peak: linear warm-up, then down to `final_ratio` at step `steps`."""
    if step <= schedule.warmup_steps:
        return step / schedule.warmup_steps
    if schedule.kind == "constant":
        return 1.0
    done = (step - schedule.warmup_steps) / max(1, steps - schedule.warmup_steps)
    left = 1.0 - done if schedule.kind == "linear" else 0.5 * (1.0 + math.cos(math.pi * done))
    return schedule.final_ratio + (1.0 - schedule.final_ratio) * left
