"""Stage gate: verdicts on quality, budget and reproducibility, each with its reason; one "no" refuses the run.

What a commit changes of the quality gates that judge it since its base is said, too: one that it loosens lets it pass.
"""

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from gangline.errors import GateError
from gangline.line.record.context import RunContext, StageResult
from gangline.line.results import band
from gangline.line.results.outputs import judge_outputs
from gangline.line.results.processes import judge_processes
from gangline.line.results.published_weights import judge_weights
from gangline.line.results.reproducibility import reproducibility_items
from gangline.line.results.unreported_metrics import form_of, missing_metric
from gangline.line.stages.evaluate import compared_with_base
from gangline.planner.budget import check_measured
from gangline.report.training_facts import privacy_words
from gangline.spec.codec import digest, to_plain
from gangline.spec.config.line import GateTable, QualityGate
from gangline.spec.federated import FederationResult
from gangline.spec.measurements import Answer, Band, Curve, CurvePoint, Metric
from gangline.spec.record import Gate, Record
from gangline.spec.run_flags import flags_of, not_finite
from gangline.storage.objects.blobs import get_blob
from gangline.units import format_number

EQUAL_SEEDS = (
    "its seeds gave equal values, as if the program did not use its seed: the band is only its floor;"
    " read GANGLINE_SEED in a program, set no seed in a task; or set floor_percent or tolerance_percent"
)
_MARKS: dict[Answer, str] = {"yes": "✓", "no": "✗", "unknown": "?"}
_HEADS: dict[tuple[Answer, bool], str] = {
    ("yes", False): "pinned: ", ("unknown", False): "not pinned: ",
    ("no", False): "not pinned, and the line is strict: ", ("unknown", True): "", ("no", True): "",
}  # fmt: skip


def gate(ctx: RunContext) -> StageResult:
    """Judges every time, because that is cheap; fails with GateError (60), with every verdict recorded."""
    budget_gates = _budget(ctx)
    base = ctx.base
    with_base = _metrics_with_base(ctx)
    record = replace(ctx.record, metrics=ctx.record.metrics | with_base)
    curves = list(base.curve.seed_points.values()) if base else []
    equal = len(curves) > 1 and len(set(curves)) == 1
    base_data = base.inputs.data if base else None
    end = base.curve.points[-1].step if base and base.curve.points else 0
    judged = judge(
        ctx.line.gate, record, base_data=base_data, equal_curves=equal, base_end=end, built=_built(ctx)
    )  # fmt: skip
    if base is not None and record.commit.rules is None:
        judged = with_changes(judged, ctx.line.gate.quality, base, record)
    gates = (*budget_gates, *judged)
    refused = [each for each in gates if each.verdict == "no"]
    text = " · ".join(_gate_text(each) for each in gates)
    return StageResult(
        state="failed" if refused else "done",
        message=text,
        key=digest([ctx.line.gate, ctx.record.metrics, ctx.record.commit]),
        change=lambda record: replace(record, gates=gates, metrics=record.metrics | with_base),
        error=GateError("; ".join(f"{each.name}: {each.reason}" for each in refused)) if refused else None,
    )


def _budget(ctx: RunContext) -> list[Gate]:
    """The verdict of the plan stage, with what the gangs took in place of the forecast."""
    plan, ledger = ctx.record.plan, ctx.record.ledger
    planned = [each for each in ctx.record.gates if each.name == "budget"]
    if plan is None or not planned:
        return planned
    hours = ledger.allocated_seconds / 3600 if ledger is not None and ledger.resource == "gpu" else None
    price = plan.forecast.money / plan.forecast.gpu_hours if plan.forecast.money and plan.forecast.gpu_hours else None
    money = hours * price if hours is not None and price is not None else None
    measured = replace(plan.measured, gpu_hours=hours, money=money)
    band = float(planned[0].evidence.get("band", 0.0))
    return [
        check_measured(
            ctx.line.plan, ctx.site.limits, measured, plan.forecast, band=band, seeds=ctx.line.evaluate.seeds
        )
    ]  # fmt: skip


def _metrics_with_base(ctx: RunContext) -> dict[str, Metric]:
    """Metrics that a gate judges, with the base's values, which those measured in training do not have yet."""
    names = {quality_gate.metric for quality_gate in ctx.line.gate.quality} & ctx.record.metrics.keys()
    return {name: compared_with_base(ctx, name, ctx.record.metrics[name]) for name in sorted(names)}


def _built(ctx: RunContext) -> dict[str, str] | None:
    """Versions that the build stage installed; None if it made no environment."""
    key = ctx.output("build", "packages")
    versions = json.loads(get_blob(ctx.store, key)) if key else None
    return {str(name): str(version) for name, version in versions.items()} if isinstance(versions, dict) else None


def judge(
    table: GateTable, record: Record, *, base_data: str | None, equal_curves: bool = False, base_end: int = 0,
    built: Mapping[str, str] | None = None,
) -> Iterator[Gate]:  # fmt: skip
    """Verdicts on a record, in the order of the report.

    Args:
        table: `[gate]` of the line.
        record: Of a run that has trained.
        base_data: Data digest of the base; None without a base.
        equal_curves: Whether all seeds of the base have the same curve.
        base_end: Last step of the base's curve.
        built: Versions that the build stage installed; None if it made no environment.
    """
    yield _reproducible(table, record, built)
    yield judge_processes(record.processes, table.may_fail)
    if (of_outputs := judge_outputs(record)) is not None:
        yield of_outputs
    if (of_weights := judge_weights(record)) is not None:
        yield of_weights
    if (of_privacy := judge_privacy(record.federated)) is not None:
        yield of_privacy
    for wanted in table.quality:
        if (value := not_finite(record).get(wanted.metric)) is not None:
            reason = f"{wanted.metric} is {value}, which is not finite"
            yield Gate(name=f"quality:{wanted.metric}", verdict="no", reason=reason)
            continue
        if wanted.metric not in record.metrics:
            yield _unreported(wanted, record)
            continue
        if wanted.limit is None and base_data not in (None, record.inputs.data):
            yield _other_data(wanted, require_base=table.require_base)
            continue
        by_band = wanted.limit is None and wanted.tolerance_percent is None
        if by_band and wanted.metric == record.curve.metric and _base_bands(record.curve):
            yield _by_curve(wanted, record.curve, equal=equal_curves, base_end=base_end)
        else:
            yield _quality(wanted, record, require_base=table.require_base, has_base=base_data is not None)
    if table.require_base and record.commit.base is None and not table.quality:
        yield Gate(name="base", verdict="no", reason="no ancestor has passed, and gate.require_base requires one")


def judge_privacy(found: FederationResult | None) -> Gate | None:
    """Verdict on what the records of members spent; None: no privacy was asked for."""
    if found is None or found.epsilon is None:
        return None
    evidence = {"epsilon": found.epsilon, "delta": found.delta, "spent": found.spent}
    if found.spent is None:
        return Gate(name="privacy", verdict="unknown", reason=privacy_words(found), evidence=evidence)
    verdict: Answer = "yes" if found.spent <= found.epsilon else "no"
    return Gate(name="privacy", verdict=verdict, reason=privacy_words(found), evidence=evidence)


def _reproducible(table: GateTable, record: Record, built: Mapping[str, str] | None) -> Gate:
    """Yes only if everything is pinned; unknown items refuse a run only if the line is strict."""
    found = reproducibility_items(record, built)
    wrong = [item for item in found if item.pinned == "no"]
    open_ = [item for item in found if item.pinned == "unknown"]
    refuses = (bool(wrong) and bool(table.reproducible)) or (bool(open_) and table.reproducible == "strict")
    verdict: Answer = "no" if refuses else "unknown" if wrong or open_ else "yes"
    reason = "; ".join(f"{item.name}: {item.by}" for item in wrong or open_) or ", ".join(item.name for item in found)
    patch = {"patch": record.commit.patch} if record.commit.patch else {}
    evidence = {"items": [to_plain(item) for item in found], **patch}
    return Gate(
        name="reproducible", verdict=verdict, reason=f"{_HEADS[verdict, bool(wrong)]}{reason}", evidence=evidence
    )


def _unreported(wanted: QualityGate, record: Record) -> Gate:
    """No: a metric that is never reported would make a gate that never refuses."""
    reason = missing_metric(wanted.metric, record.metrics, form_of(record))
    return Gate(name=f"quality:{wanted.metric}", verdict="no", reason=reason)


def _quality(wanted: QualityGate, record: Record, *, require_base: bool, has_base: bool) -> Gate:
    name, metric = f"quality:{wanted.metric}", record.metrics[wanted.metric]
    if not math.isfinite(metric.value):
        return Gate(name=name, verdict="no", reason=f"{wanted.metric} is {metric.value}, which is not finite")
    if wanted.limit is not None:
        return _by_limit(name, wanted, metric, wanted.limit)
    if metric.base is None:
        verdict: Answer = "no" if require_base else "unknown"
        lacks = _no_value_of_base(wanted.metric, record, has_base=has_base)
        next_base = "it is compared with nothing" if flags_of(record) else "this run becomes the base"
        why = "gate.require_base requires one" if require_base else next_base
        return Gate(name=name, verdict=verdict, reason=f"{lacks}: {why}{_equal(metric.band)}")
    if metric.base_band is None:
        reason = f"the base has no band, only {format_number(metric.base)}; {_ways_without_band(record)}"
        return Gate(name=name, verdict="unknown", reason=reason)
    return _by_band(name, wanted, metric)


def _no_value_of_base(metric: str, record: Record, *, has_base: bool) -> str:
    base = record.commit.base
    if base is None:
        return "no base yet"
    return f"the base {base.run} has no {metric}" if has_base else f"the store has no record of the base {base.run} now"


def _ways_without_band(record: Record) -> str:
    """What this run's line may say so that the gate can judge."""
    alone = "tolerance_percent or limit judges without one"
    if record.inputs.values.get("train.start.checkpoint"):
        return f"{alone}, as a run that continues from a checkpoint has one seed"
    learns = "evaluate.seeds = 3 learns one"
    if form_of(record) == "task":
        return learns
    return f"{learns}, if the program reads its seed (GANGLINE_SEED); {alone}"


def _other_data(wanted: QualityGate, *, require_base: bool) -> Gate:
    """Unknown, because a value on other data does not measure the code."""
    verdict: Answer = "no" if require_base else "unknown"
    reason = "the base was measured on other data and is not comparable; a limit judges without a base"
    return Gate(name=f"quality:{wanted.metric}", verdict=verdict, reason=reason)


def _by_limit(name: str, wanted: QualityGate, metric: Metric, limit: float) -> Gate:
    good = metric.value <= limit if wanted.better == "lower" else metric.value >= limit
    sign = "at most" if wanted.better == "lower" else "at least"
    reason = f"{format_number(metric.value)}, wanted {sign} {format_number(limit)}"
    evidence = {"value": metric.value, "limit": limit}
    return Gate(name=name, verdict="yes" if good else "no", reason=reason, evidence=evidence)


def _by_band(name: str, wanted: QualityGate, metric: Metric) -> Gate:
    base = metric.base_band
    assert base is not None, name
    floor = abs(base.center) * wanted.floor_percent / 100
    judged = replace(base, half=max(base.half, floor))
    worse = band.is_worse(metric.value, judged, wanted.better)
    percent = abs(judged.half / judged.center) * 100 if judged.center else 0.0
    spread = f"{format_number(judged.center)} ± {percent:.1f} %"
    shown = f"base band {spread} ({judged.n} seeds of {judged.origin})"
    if judged.n < band.MIN_SEEDS:
        shown = f"tolerance {spread} around the base {judged.origin}"
    better = not worse and abs(metric.value - judged.center) > judged.half
    where = "is outside" if worse else "is better than" if better else "is within"
    return Gate(
        name=name,
        verdict="no" if worse else "yes",
        reason=f"{format_number(metric.value)} {where} the {shown}{_equal(base)}",
        evidence={"value": metric.value, "center": judged.center, "half": judged.half, "n": judged.n},
    )


def _equal(learned: Band | None) -> str:
    """Note on a band of equal seeds, which does not measure noise."""
    return f"; {EQUAL_SEEDS}" if learned is not None and learned.equal else ""


def _by_curve(wanted: QualityGate, curve: Curve, *, equal: bool, base_end: int) -> Gate:
    """Judges the whole curve: it is outside the band from three consecutive points outside.

    Unknown where the curve ends before that of the base: what it lacks may be outside.
    """
    note = f"; {EQUAL_SEEDS}" if equal else ""
    bands = _base_bands(curve)
    left = band.first_point_outside([point.value for point in curve.points], bands, better=wanted.better)
    if left is None:
        reason = f"within the base band at all of {sum(each is not None for each in bands)} points{note}"
        if (end := curve.points[-1].step) < base_end:
            reason = f"its curve ends at step {end}, that of the base at {base_end}; {reason}"
            return Gate(name=f"quality:{wanted.metric}", verdict="unknown", reason=reason)
        return Gate(name=f"quality:{wanted.metric}", verdict="yes", reason=reason)
    step = curve.points[left].step
    reason = f"{wanted.metric} is outside the base band from step {step}{note}"
    return Gate(name=f"quality:{wanted.metric}", verdict="no", reason=reason, evidence={"step": step})


def _base_bands(curve: Curve) -> list[Band | None]:
    """The base's band at each point; empty if it has none at any."""
    bands = [_band_at(point) for point in curve.points]
    return bands if any(bands) else []


def _band_at(point: CurvePoint) -> Band | None:
    if point.low is None or point.high is None:
        return None
    center = (point.low + point.high) / 2
    return Band(center=center, half=point.high - center, n=band.MIN_SEEDS, origin="")


def _gate_text(each: Gate) -> str:
    return f"{each.name} {_MARKS[each.verdict]}" + ("" if each.verdict == "yes" else f" {each.reason}")


_PREFIX = "quality:"


def with_changes(judged: Iterable[Gate], ours: Iterable[QualityGate], base: Record, record: Record) -> Iterator[Gate]:
    """`judged`, with what changed since `base`; then the metrics that only its line judges, as unknown."""
    before = _by_metric(base.inputs.values.get("gate.quality"))
    now = _by_metric([to_plain(quality_gate) for quality_gate in ours])
    for gate in judged:
        metric = gate.name.removeprefix(_PREFIX)
        changed = _changes(before[metric], now[metric]) if metric in before.keys() & now.keys() else ""
        yield replace(gate, reason=f"{gate.reason}; since the base: {changed}") if changed else gate
    for metric in sorted(before.keys() - now.keys()):
        reason = f"the base's line judges it, this one does not: {_values(metric, base, record)}"
        yield Gate(name=f"{_PREFIX}{metric}", verdict="unknown", reason=reason)


def _by_metric(gates: Any) -> dict[str, Mapping[str, Any]]:
    """Gates of an effective line by their metrics; a record may be of any version."""
    found = gates if isinstance(gates, list) else []
    return {str(each["metric"]): each for each in found if isinstance(each, dict) and "metric" in each}


def _changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """`tolerance_percent 1.0 -> 80.0, limit 2.5 -> none` of keys that both have, defaults included."""
    pairs = [(key, before[key], now[key]) for key in now if key in before and before[key] != now[key]]
    return ", ".join(f"{key} {_said(was)} -> {_said(value)}" for key, was, value in pairs)


def _said(value: Any) -> str:
    return "none" if value is None else str(value)


def _values(metric: str, base: Record, record: Record) -> str:
    now, was = record.metrics.get(metric), base.metrics.get(metric)
    words = [format_number(each.value) if each else "none" for each in (now, was)]
    return f"{words[0]}, base {words[1]}"
