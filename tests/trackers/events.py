"""Events of rank 0 as a training writes them, and all that a tracker gets of them."""

from typing import NamedTuple

from gangline.trackers.operations import all_points, tracked_run
from gangline.trackers.protocol import Point, TrackedRun


class Operations(NamedTuple):
    run: TrackedRun
    points: tuple[Point, ...]


def operations(record, events, *, experiment="{project}", price=None):
    run = tracked_run(record, experiment=experiment, price=price)
    return Operations(run, tuple(all_points(record, events)))


def step(number, *, generation=1, loss=None, time=1_764_385_200.0, **more):
    value = 2.5 / number if loss is None else loss
    return {
        "event": "step", "rank": 0, "generation": generation, "step": number, "mono": 1.0, "time": time + number,
        "loss": value, "samples": 8, "seconds": 0.5, "phases": {"forward": 0.5}, "span": [0, 8], **more,
    }  # fmt: skip


def steps(last, **more):
    return [step(number, **more) for number in range(1, last + 1)]


def evaluated(number, *, time=1_764_385_200.5, **metrics):
    return {"event": "evaluated", "rank": 0, "generation": 1, "step": number, "mono": 1.0, "time": time + number,
            "seed": 1, "metrics": metrics}  # fmt: skip
