"""Values of a metric in records, by commit and seed, and the step that separates two commits.

A value counts if its run had the surroundings of now: data of the store, packages of an unlocked environment, files
that its ranks read and that no key declares. A search compares commits, not data or packages.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gangline.build.own_environment import installed_versions, software_versions
from gangline.errors import BuildError, ConfigError, IntegrityError, NonFiniteError, TrainingError
from gangline.line.request.run_request import RunRequest
from gangline.line.results.run_differences import read_differences
from gangline.line.results.undeclared_reads import changed_since, named
from gangline.line.stages.data_files import DatasetAccess, read_data
from gangline.line.stages.tracked_files import find_pointers
from gangline.report.comparison.compare import curves_of
from gangline.report.inputs import imported_versions
from gangline.report.text import short
from gangline.signing.record_seal import Sealer
from gangline.spec.config.data_keys import DataAccess
from gangline.spec.config.line import Line
from gangline.spec.config.site import Site
from gangline.spec.record import Record
from gangline.spec.run_flags import not_finite, reported_no_steps, was_drilled
from gangline.storage.objects.protocol import ObjectStore

_ANY = ("evaluate.", "gate.", "prove.", "publish.", "trigger.", "plan.")
_ANY_KEYS = frozenset({"train.seed", "train.stop_at"})
_DIVERGED = NonFiniteError.exit_code
_BROKEN = frozenset({ConfigError.exit_code, BuildError.exit_code, TrainingError.exit_code, 32, 33, 34})
"""Exit codes of commits that cannot be measured, because line, environment or program are wrong."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Surroundings:
    """What surrounds a commit; an empty field does not matter to it, or is not known."""

    data: str = ""
    """Digest of all data, where some is not in the commit."""
    versions: Mapping[str, str] = field(default_factory=dict)
    """Packages and Python of an environment without lock."""

    def other_in(self, record: Record) -> str:
        """`data b6467f6e, now bc91679d`: the first that was different in a run; empty if none is known to be."""
        if changed := changed_since(record):
            return f"{named(changed)}, undeclared and changed since"
        if self.data and record.inputs.data not in ("", self.data):
            return f"data {short(record.inputs.data)}, now {short(self.data)}"
        if not self.versions or record.inputs.image is not None or (record.ran is not None and record.ran.foreign):
            return ""
        for name, version in (imported_versions(record) or record.inputs.versions).items():
            now = self.versions.get(name.lower().replace("_", "-"), version)
            if now != version and name != "gangline":
                return f"{name} {version}, now {now}"
        return ""


@dataclass(frozen=True, kw_only=True, slots=True)
class CommitValues:
    """Recorded values of a commit."""

    values: dict[int, float] = field(default_factory=dict)
    """Value of each seed; infinite for a training that diverged, or where the metric was not finite."""
    runs: tuple[str, ...] = ()
    seconds: float = 0.0
    """Rank-seconds of runs for this search."""
    problem: str = ""
    """Why there are no values."""
    unreported: bool = False
    """A run of it ended well, and has none."""
    left_out: str = ""
    """What was other than now in runs that do not count for it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MetricAtStep:
    """The number to read from a record."""

    metric: str
    at: int
    since: str
    """Measuring runs created from this time on belong to this search."""


def read_values(
    records: Iterable[Record], line: Mapping[str, Any], wanted: MetricAtStep, now: Surroundings | None = None
) -> CommitValues:
    """Values from the records of one commit.

    Args:
        records: Records of one commit.
        line: Its effective line; runs with other keys do not count.
        wanted: The number to read.
        now: Runs from before the search that had other data or packages do not count.
    """
    values: dict[int, float] = {}
    runs: list[str] = []
    seconds, problem, unreported, left_out = 0.0, "", False, ""
    for record in records:
        if not _is_comparable(record, line):
            continue
        other = now.other_in(record) if now is not None and record.run.created < wanted.since else ""
        if other:
            left_out = other
            continue
        found = values_of(record, wanted.metric, wanted.at)
        own = record.inputs.values.get("train.stop_at") == wanted.at
        if own and record.run.created >= wanted.since and record.ledger:
            seconds += record.ledger.allocated_seconds
        if own and not found and record.run.exit_code in _BROKEN:
            problem = record.run.reason
        elif own and not found and reported_no_steps(record):
            at_the_end = wanted.at >= record.inputs.values.get("train.steps", 0)
            lacks = f"no {wanted.metric}" if at_the_end else "no steps: leave out @STEP"
            problem, unreported = f"its program reports {lacks}", True
        if found:
            values = found | values
            runs.append(record.run.id)
    if values:
        problem, unreported = "", False
    return CommitValues(
        values=values, runs=tuple(runs), seconds=seconds, problem=problem, unreported=unreported, left_out=left_out
    )


def values_of(record: Record, metric: str, at: int) -> dict[int, float]:
    """The metric at the step by seed: from the curve, or measured if the training ended there."""
    if record.run.exit_code == _DIVERGED:
        return dict.fromkeys(record.inputs.seeds, math.inf) if _end_step(record) <= at else {}
    if metric in not_finite(record) and _end_step(record) == at:
        return {_seed(record): math.inf}
    if metric == record.curve.metric and record.curve.points:
        return _curve_values(record, at)
    measured = record.metrics.get(metric)
    if measured is None or _end_step(record) != at:
        return {}
    seeds = {int(seed): value for seed, value in measured.seeds.items()}
    return seeds or {_seed(record): measured.value}


def next_curve_step(at: int, steps: int) -> int:
    """The first step from `at` on with a point of the curve, which curves of any length have."""
    count = min(64, steps)
    place = -(-at * count // steps)
    return max(1, place) * steps // count


def _curve_values(record: Record, at: int) -> dict[int, float]:
    place = next((i for i, point in enumerate(record.curve.points) if point.step == at), None)
    if place is None:
        return {}
    others = {int(seed): line[place] for seed, line in record.curve.seed_points.items() if place < len(line)}
    return others | {_seed(record): record.curve.points[place].value}


def _is_comparable(record: Record, line: Mapping[str, Any]) -> bool:
    """Whether it is a run of the unchanged commit with the keys of its line, and without a drill."""
    if record.commit.patch or record.commit.trust != "own" or was_drilled(record):
        return False
    given = record.inputs.values
    compared = (key for key in given.keys() | line.keys() if key not in _ANY_KEYS and not key.startswith(_ANY))
    return all(given.get(key) == line.get(key) for key in compared)


def _seed(record: Record) -> int:
    return int(record.inputs.values.get("train.seed", 1))


def _end_step(record: Record) -> int:
    """A program that reports no steps went to its end, whatever `train.stop_at` asked."""
    values = record.inputs.values
    asked = None if reported_no_steps(record) else values.get("train.stop_at")
    return int(asked or values.get("train.steps") or 0)


MARGIN = 1.1


def step_to_measure(store: ObjectStore, good: Record | None, bad: Record | None, *, steps: int) -> int:
    """A step of the curve shortly after the curves separate; the last if they do not, lack points, or cannot stop."""
    if good is None or bad is None or reported_no_steps(good) or reported_no_steps(bad):
        return steps
    curves = curves_of(good, bad, read_differences(store, None, good, bad).bands)
    if curves is None or curves.apart_from is None:
        return steps
    return min(steps, next_curve_step(math.ceil(curves.apart_from * MARGIN), steps))


def cheapest_step(steps: Sequence[int], trainings: Callable[[int], int]) -> int:
    """The step whose missing trainings have the fewest steps in total; the smaller of equals.

    Args:
        steps: Steps to choose from.
        trainings: Number of trainings that are missing at a step.
    """
    return min(steps, key=lambda step: (step * trainings(step), step))


def surroundings_now(
    request: RunRequest, site: Site, store: ObjectStore, *, environ: Mapping[str, str]
) -> Surroundings:
    """Those that a training of the commit would have now; data that it would not find are not known."""
    line = request.line
    versions = {} if line.env.lock else {**installed_versions(), **software_versions()}
    data = _data_now(request, site, store, environ) if _has_outside_data(line) else ""
    return Surroundings(data=data, versions=versions)


def _has_outside_data(line: Line) -> bool:
    return bool(line.data.shards or line.data.mix) or any(not text.startswith("repo:") for text in line.data.text)


def _data_now(request: RunRequest, site: Site, store: ObjectStore, environ: Mapping[str, str]) -> str:
    access = DataAccess(prefixes=site.store.data, project=request.line.project.name)
    allowed = DatasetAccess(access=access, site=site, trusted=lambda: Sealer.of(site, environ).trusted)
    try:
        if find_pointers(request.repository, request.tree, request.line, commit=request.commit).pointers:
            return ""  # their SHA-256 digests are known once they are fetched
        return read_data(request.repository, request.tree, request.line.data, store=store, allowed=allowed)[1].digest
    except (ConfigError, IntegrityError):
        return ""
