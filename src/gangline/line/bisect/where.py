"""How far a training has to go to tell two commits apart: to where the courses of both ends part, plus a tenth."""

import math
from collections.abc import Callable, Sequence

from gangline.line.bisect.evidence import end_place
from gangline.line.differing import look_beyond
from gangline.report.compare_curves import curves_of
from gangline.spec.record import Record
from gangline.storage.protocol import ObjectStore

MARGIN = 1.1


def step_to_measure(store: ObjectStore, good: Record | None, bad: Record | None, *, steps: int) -> int:
    """A place of the course; the last step where one has no course, no band, or they part nowhere."""
    if good is None or bad is None:
        return steps
    curves = curves_of(good, bad, look_beyond(store, None, good, bad).bands)
    if curves is None or curves.apart_from is None:
        return steps
    return min(steps, end_place(math.ceil(curves.apart_from * MARGIN), steps))


def cheapest(steps: Sequence[int], trainings: Callable[[int], int]) -> int:
    """The step whose missing trainings have the fewest steps together, the shorter one of equals.

    Args:
        steps: Where one may measure.
        trainings: How many are missing at a step: what records know there costs nothing.
    """
    return min(steps, key=lambda step: (step * trainings(step), step))
