"""What a tracker is sent for one run, from its record and the events of its rank 0: pure, and equal however often it is
computed. Times are those of the events and of the record.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from math import isfinite
from typing import Any

from gangline.metrics.record_values import Price, cost_of, created_at, ended_at, gpu_seconds
from gangline.metrics.step_table import finite, step_of
from gangline.sanitize import clean
from gangline.spec.output_limits import MOST_NAME, MOST_NAMES
from gangline.spec.record import Artifact, Record
from gangline.spec.run_flags import search_of, stage
from gangline.trackers.protocol import Point, Status, TrackedRun

MOST_TEXT = 500
MOST_ARTIFACTS = 64
_SHOWN_AS = {"seconds": "step_seconds", "peak_bytes": "memory_peak_bytes"}
_NO_METRICS = frozenset({"step", "rank", "generation", "mono", "time", "samples", "seed", "job"})
_STATUS: dict[str | None, Status] = {
    None: "running", "passed": "finished", "refused": "finished", "failed": "failed", "cancelled": "killed",
    "superseded": "killed",
}  # fmt: skip
Event = Mapping[str, Any]


def all_points(record: Record, events: Iterable[Event]) -> Iterator[Point]:
    """Points of the events of rank 0 of all gangs of a training, and those that the record of an ended run adds."""
    has_curve = False
    for event in events:
        points = points_of(event)
        has_curve = has_curve or any(point.metric == record.curve.metric for point in points)
        yield from points
    yield from end_points(record, has_curve=has_curve)


def points_of(event: Event) -> list[Point]:
    """Points of one event of rank 0; numbers that are not finite are left out."""
    time, step = finite(event.get("time")), step_of(event)
    if event.get("rank") != 0 or time is None or step is None or event.get("event") not in ("step", "evaluated"):
        return []
    values = event if event["event"] == "step" else event.get("metrics")
    numbers = _numbers(values if isinstance(values, Mapping) else {})
    return [Point(name, step, round(1000 * time), value) for name, value in numbers]


def _numbers(values: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """Finite numbers by name, in the order of the event."""
    named = [each for each in values.items() if each[0] not in _NO_METRICS]
    for name, value in named[:MOST_NAMES]:
        if (measured := finite(value)) is not None:
            yield clean(_SHOWN_AS.get(name, name), limit=MOST_NAME) or "unnamed", measured
    tokens, seconds = finite(values.get("tokens")), finite(values.get("seconds"))
    if tokens is not None and seconds and "tokens_per_second" not in values:
        yield "tokens_per_second", tokens / seconds


def end_points(record: Record, *, has_curve: bool) -> Iterator[Point]:
    """Points that the record of an ended run adds: each of its metrics as `final/NAME`, as gates judge it.

    Where no event had the curve, as of a command that leaves a file of metrics, the curve's points are added, too.
    """
    if record.run.state != "ended":
        return
    trained, judged = _ended_ms(record, "train"), _ended_ms(record, "evaluate")
    if not has_curve:
        for point in record.curve.points:
            if isfinite(point.value):
                yield Point(clean(record.curve.metric, limit=MOST_NAME), point.step, trained, point.value)
    last = record.curve.points[-1].step if record.curve.points else 0
    for name, metric in record.metrics.items():
        if isfinite(metric.value):
            step = last if metric.step is None else metric.step
            yield Point(f"final/{clean(name, limit=MOST_NAME)}", step, judged, metric.value)


def _ended_ms(record: Record, name: str) -> int:
    ended = stage(record, name).ended
    return round(1000 * (datetime.fromisoformat(ended).timestamp() if ended else created_at(record)))


def experiment_of(record: Record, experiment: str) -> str:
    """Name of the experiment of the run, with `{project}` and `{branch}` replaced."""
    place = {"{project}": record.run.project, "{branch}": record.commit.branch or "no-branch"}
    for word, text in place.items():
        experiment = experiment.replace(word, text)
    return clean(experiment, limit=MOST_NAME)


def tracked_run(record: Record, *, experiment: str, price: Price | None) -> TrackedRun:
    """All that is no point, as the record has it now.

    Args:
        record: Record of the run.
        experiment: `{project}` and `{branch}` in it are replaced.
        price: What a GPU hour costs here; None: the cost is left out.
    """
    run, values = record.run, sorted(record.inputs.values.items())
    inputs = [value for value in values if value[0] != "project.track" and not value[0].startswith("search.")]
    return TrackedRun(
        id=run.id,
        project=run.project,
        experiment=experiment_of(record, experiment),
        name=run.id,
        status=_STATUS[run.verdict],
        started_ms=round(1000 * created_at(record)),
        ended_ms=round(1000 * ended_at(record)) if run.state == "ended" else None,
        group=search_of(record),
        parameters={key: _text(value) for key, value in inputs},
        tags=_tags(record, price),
    )


def _text(value: Any) -> str:
    said = value if isinstance(value, str) else json.dumps(value, sort_keys=True, default=str)
    return clean(said, limit=MOST_TEXT)


def _tags(record: Record, price: Price | None) -> dict[str, str]:
    commit, inputs, plan, run = record.commit, record.inputs, record.plan, record.run
    cost = cost_of(record, price) if price is not None and gpu_seconds(record) else None
    left_out = sum(broken.count for broken in record.curve.broken)
    facts: dict[str, Any] = {
        "run": run.id, "project": run.project, "attempt": run.attempt, "commit": commit.sha, "branch": commit.branch,
        "pull_request": commit.pull_request, "subject": commit.subject, "repository": commit.repository,
        "trust": commit.trust, "dirty": commit.patch, "base": commit.base.run if commit.base else None,
        "search": search_of(record),
        "overrides": " ".join(inputs.overrides), "line": inputs.line, "code": inputs.code, "image": inputs.image,
        "environment": inputs.environment, "data": inputs.data, "target": run.target, "verdict": run.verdict,
        "reason": run.reason, "exit_code": run.exit_code, "taken_from": stage(record, "train").taken_from,
        "version": stage(record, "publish").outputs.get("version"),
        "cost": None if cost is None or price is None else f"{cost:.2f} {price.currency}",
        "left_out": f"{left_out} values of {record.curve.metric} that are not finite" if left_out else None,
    }  # fmt: skip
    if plan is not None:
        facts |= {"plan": plan.name, "plan_digest": plan.digest, "strategy": plan.strategy, "device": plan.device,
                 "world_size": plan.world_size, "precision": plan.precision}  # fmt: skip
    if record.ledger is not None:
        facts["ledger.resource"] = record.ledger.resource
        facts["ledger.allocated_seconds"] = record.ledger.allocated_seconds
        facts |= {f"ledger.{cause}_seconds": seconds for cause, seconds in sorted(record.ledger.seconds.items())}
    facts |= {f"gate.{gate.name}": f"{gate.verdict}: {gate.reason}" for gate in record.gates}
    facts |= {f"metric.{name}.band": f"{metric.band.center:g} ± {metric.band.half:g} of {metric.band.n} seeds"
             for name, metric in record.metrics.items() if metric.band is not None}  # fmt: skip
    facts |= _artifact_tags(record.artifacts)
    shown = {clean(f"gangline.{name}", limit=MOST_NAME): value for name, value in facts.items()}
    return {name: _text(value) for name, value in shown.items() if value not in (None, "")}


def _artifact_tags(artifacts: Iterable[Artifact]) -> dict[str, str]:
    """Key, size and digest of what the run left in the store, by its kind; nothing of it is sent."""
    tags: dict[str, str] = {}
    for artifact in artifacts:
        same = sum(name.partition("#")[0] == f"artifact.{artifact.kind}" for name in tags)
        name = f"artifact.{artifact.kind}" + (f"#{same + 1}" if same else "")
        if len(tags) < MOST_ARTIFACTS:
            tags[name] = f"{artifact.key} {artifact.size_bytes} bytes sha256:{artifact.sha256}"
    return tags
