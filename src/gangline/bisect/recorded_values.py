"""Values of a metric in records, by commit and seed, and the step at which two commits can be told apart."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gangline.errors import BuildError, ConfigError, NonFiniteError, TrainingError
from gangline.line.results.run_differences import read_differences
from gangline.report.comparison.curves import curves_of
from gangline.spec.record import Record
from gangline.spec.run_flags import was_drilled
from gangline.storage.objects.protocol import ObjectStore

_ANY = ("evaluate.", "gate.", "prove.", "publish.", "trigger.", "plan.")
_ANY_KEYS = frozenset({"train.seed", "train.stop_at"})
_DIVERGED = NonFiniteError.exit_code
_BROKEN = frozenset({ConfigError.exit_code, BuildError.exit_code, TrainingError.exit_code, 32, 33, 34})
"""Ends that say that a commit cannot be asked: its line, its environment or its program is wrong."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CommitValues:
    """What is known of one commit."""

    values: dict[int, float] = field(default_factory=dict)
    """By seed; a training that diverged is infinite."""
    runs: tuple[str, ...] = ()
    seconds: float = 0.0
    """Held by runs that were made for this search."""
    problem: str = ""
    """Why there are no values."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MetricAtStep:
    """Which number of a record counts."""

    metric: str
    at: int
    since: str
    """Runs that were made to be measured, from this moment on, are this search's own."""


def read_values(records: Iterable[Record], line: Mapping[str, Any], wanted: MetricAtStep) -> CommitValues:
    """Everything that the records of one commit say.

    Args:
        records: Of one commit.
        line: The effective line of that commit; runs that were asked otherwise do not count.
        wanted: The number.
    """
    values: dict[int, float] = {}
    runs: list[str] = []
    seconds, problem = 0.0, ""
    for record in records:
        if not _is_comparable(record, line):
            continue
        found = values_of(record, wanted.metric, wanted.at)
        own = record.inputs.values.get("train.stop_at") == wanted.at
        if own and record.run.created >= wanted.since and record.ledger:
            seconds += record.ledger.allocated_seconds
        if own and not found and record.run.exit_code in _BROKEN:
            problem = record.run.reason
        if found:
            values = found | values
            runs.append(record.run.id)
    return CommitValues(values=values, runs=tuple(runs), seconds=seconds, problem="" if values else problem)


def values_of(record: Record, metric: str, at: int) -> dict[int, float]:
    """The metric at the step by seed: of the course, or measured where the training ended just there."""
    if record.run.exit_code == _DIVERGED:
        return dict.fromkeys(record.inputs.seeds, math.inf) if _end_step(record) <= at else {}
    if metric == record.curve.metric and record.curve.points:
        return _curve_values(record, at)
    measured = record.metrics.get(metric)
    if measured is None or _end_step(record) != at:
        return {}
    seeds = {int(seed): value for seed, value in measured.seeds.items()}
    return seeds or {_seed(record): measured.value}


def next_curve_step(at: int, steps: int, places: int = 64) -> int:
    """The first step from `at` on where a point of the course lies: only there do courses of any length agree."""
    count = min(places, steps)
    place = -(-at * count // steps)
    return max(1, place) * steps // count


def _curve_values(record: Record, at: int) -> dict[int, float]:
    place = next((i for i, point in enumerate(record.curve.points) if point.step == at), None)
    if place is None:
        return {}
    others = {int(seed): line[place] for seed, line in record.curve.seed_points.items() if place < len(line)}
    return others | {_seed(record): record.curve.points[place].value}


def _is_comparable(record: Record, line: Mapping[str, Any]) -> bool:
    """Undisturbed, of the commit as it stands, asked as its line asks."""
    if record.commit.patch or record.commit.trust != "own" or was_drilled(record):
        return False
    given = record.inputs.values
    return all(given.get(key) == line.get(key) for key in given.keys() | line.keys() if not _may_differ(key))


def _may_differ(key: str) -> bool:
    return key in _ANY_KEYS or key.startswith(_ANY)


def _seed(record: Record) -> int:
    return int(record.inputs.values.get("train.seed", 1))


def _end_step(record: Record) -> int:
    values = record.inputs.values
    return int(values.get("train.stop_at") or values.get("train.steps") or 0)


MARGIN = 1.1


def step_to_measure(store: ObjectStore, good: Record | None, bad: Record | None, *, steps: int) -> int:
    """A place of the course; the last step where one has no course, no band, or they part nowhere."""
    if good is None or bad is None:
        return steps
    curves = curves_of(good, bad, read_differences(store, None, good, bad).bands)
    if curves is None or curves.apart_from is None:
        return steps
    return min(steps, next_curve_step(math.ceil(curves.apart_from * MARGIN), steps))


def cheapest_step(steps: Sequence[int], trainings: Callable[[int], int]) -> int:
    """The step whose missing trainings have the fewest steps together, the shorter one of equals.

    Args:
        steps: Where one may measure.
        trainings: How many are missing at a step: what records know there costs nothing.
    """
    return min(steps, key=lambda step: (step * trainings(step), step))
