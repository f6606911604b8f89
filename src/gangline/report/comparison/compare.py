"""Compares two records: which is better, by which numbers against which bands, and what to do next. Pure.

What changed between them is listed by `changes`. Loss curves are compared on the same steps, up to where they part.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import fsum

from gangline.report.comparison.changes import changes_between, files_between, unpinned_between
from gangline.report.comparison.types import (
    ComparedCurves,
    ComparedNumber,
    Comparison,
    ComparisonContext,
    Outcome,
    RunLabel,
)
from gangline.report.facts import side_of, trained_by, verdict_word
from gangline.report.next_commands import next_of_comparison
from gangline.report.text import short
from gangline.sanitize import sanitized
from gangline.spec.measurements import Band, Metric
from gangline.spec.record import Record
from gangline.spec.run_flags import not_finite

_COSTS = (("step_seconds", "s"), ("memory_bytes", "B"), ("wall_seconds", "s"), ("gpu_hours", "GPU-h"), ("money", ""))

_AS_COST = {"step_seconds": "step_seconds", "memory_peak_bytes": "memory_bytes"}
"""Metrics of every training that a plan's measurement holds, too."""


MOST_PERCENT = 1e6
"""Limit of a tolerance that a record names; more, or what is no number, judges nothing."""
_FEW_SEEDS = "the base evaluated fewer than three seeds"
_NAMED = 3
"""Metrics without a band that are named as equal: a metrics file may hold many settings."""
_MEASURED = {*_AS_COST, "tokens_per_second", "mfu"}
"""Speed and memory, which do not decide the outcome."""


def compare(base: Record, this: Record, beyond: ComparisonContext | None = None) -> Comparison:
    """Compare `this` with `base`, by the bands that `base` learned."""
    more = beyond or ComparisonContext()
    metrics = tuple(
        _number(name, metric, this.metrics[name], _judging_band(base, this, name))
        for name, metric in sorted(base.metrics.items())
        if name in this.metrics
    )
    only_base, only_this = _alone(base, this), _alone(this, base)
    outcome, why = _outcome(base, this, metrics)
    costs = _costs(base, this)
    curves = curves_of(base, this, more.bands)
    comparison = Comparison(
        base=base.run.id,
        this=this.run.id,
        outcome=outcome,
        why=why,
        metrics=_judged_first(metrics, costs),
        costs=costs,
        only_base=only_base,
        only_this=only_this,
        changes=tuple(changes_between(base, this, more)),
        unpinned=unpinned_between(base, this),
        plan=_plan_words(base, this),
        outside_from=curves.apart_from if curves else None,
        next_command=next_of_comparison(
            base,
            this,
            worse=_worse_by_commit(base, this, metrics) if outcome == "WORSE" else None,
            is_comparable=outcome != "NOT COMPARABLE",
            needs_band=bool(metrics) and _is_unjudged(metrics),
            missing=_unmatched(base, this),
        ),
        curves=curves,
        files=files_between(base, this, more),
        labels=(_label(base), _label(this)),
    )
    return sanitized(comparison)


def _is_judged(record: Record, name: str) -> bool:
    return record.metrics[name].band is not None or any(gate.name == f"quality:{name}" for gate in record.gates)


def _alone(record: Record, other: Record) -> tuple[str, ...]:
    """Metrics of `record` that `other` lacks; empty if `other` measured nothing."""
    return tuple(sorted(record.metrics.keys() - other.metrics.keys() - _MEASURED)) if other.metrics else ()


def _label(record: Record) -> RunLabel:
    commit = record.commit
    return RunLabel(
        run=record.run.id,
        commit=commit.sha,
        subject=commit.subject,
        branch=commit.branch,
        verdict=verdict_word(record),
    )


def _judging_band(base: Record, this: Record, name: str) -> Band | None:
    """The narrowest of the band that `base` learned and of what the gates of both lines tolerate around its value.

    So a value that the gate of `this` refused is never the same, nor is one that passed because its commit loosened the
    gate. Where there is none of them, the band that `base` was judged by; None: it was not, or the data differ.
    """
    if base.inputs.data != this.inputs.data:
        return None
    inherited = this.metrics[name].base_band
    judged = inherited if inherited is not None and inherited.origin == base.run.id else None
    bands = [band for band in (base.metrics[name].band, judged, _tolerated(base, name)) if band is not None]
    return min(bands, key=lambda band: band.half, default=_inherited(base.metrics[name]))


def _tolerated(base: Record, name: str) -> Band | None:
    """What the line of `base` would tolerate around its value."""
    value = base.metrics[name].value
    gates = base.inputs.values.get("gate.quality")
    for gate in gates if isinstance(gates, list) else ():
        percent = gate.get("tolerance_percent") if isinstance(gate, dict) and gate.get("metric") == name else None
        if isinstance(percent, (int, float)) and 0 <= percent <= MOST_PERCENT:
            return Band(center=value, half=abs(value) * percent / 100, n=1, origin=base.run.id)
    return None


def _inherited(base: Metric) -> Band | None:
    """The learned band that the base was judged by: where it has none of its own, gates pass that one on."""
    return base.base_band if base.base_band is not None and base.base_band.n > 1 else None


def _number(name: str, base: Metric, this: Metric, band: Band | None) -> ComparedNumber:
    side = side_of(this.value, band, this.better or base.better)
    if side == "unknown" and this.value == base.value:
        side = "same"
    return ComparedNumber(name=name, base=base.value, this=this.value, unit=this.unit, band=band, side=side)


def _judged_first(metrics: tuple[ComparedNumber, ...], costs: tuple[ComparedNumber, ...]) -> tuple[ComparedNumber, ...]:
    """What is judged first; a measurement without a judgement that is among the costs is not shown twice."""
    cost_names = {number.name for number in costs}
    shown = [number for number in metrics if number.side != "unknown" or _AS_COST.get(number.name) not in cost_names]
    return tuple(sorted(shown, key=lambda number: (not number.band, number.side == "unknown", number.name)))


def _outcome(base: Record, this: Record, metrics: tuple[ComparedNumber, ...]) -> tuple[Outcome, str]:
    if broken := _broken(base, this):
        return "WORSE", f"{', '.join(broken)} not finite"
    if reason := _why_not(base, this, metrics):
        return "NOT COMPARABLE", reason
    if worse := [number for number in metrics if number.side == "worse"]:
        return "WORSE", _band_words(worse, "outside", base)
    if judged := _unmatched(base, this):
        return "NOT COMPARABLE", f"{', '.join(judged)} of the base has no counterpart in {this.run.id}"
    if better := [number for number in metrics if number.side == "better"]:
        return "BETTER", _band_words(better, "outside", base)
    return "SAME", _same_words([number for number in metrics if number.side == "same"], base)


def _broken(base: Record, this: Record) -> list[str]:
    """What the base was judged on and is not finite now."""
    return [name for name in sorted(not_finite(this)) if name in base.metrics and _is_judged(base, name)]


def _same_words(metrics: list[ComparedNumber], base: Record) -> str:
    equal = [number.name for number in metrics if not number.band and number.name not in _MEASURED]
    judged, plain = [name for name in equal if _is_judged(base, name)], [name for name in equal if "." not in name]
    equal = judged or plain or equal
    more = f" and {len(equal) - _NAMED} more" if len(equal) > _NAMED else ""
    said = [_band_words(metrics, "within", base), f"{', '.join(equal[:_NAMED])}{more} equal" if equal else ""]
    return "; ".join(each for each in said if each)


def _band_words(metrics: list[ComparedNumber], where: str, base: Record) -> str:
    """`eval_loss outside the band; accuracy outside the tolerance`; of a band that the base was judged by, whose."""
    by_word: dict[str, list[str]] = {}
    for number in metrics:
        if number.band:
            given = number.band == _inherited(base.metrics[number.name]) and base.metrics[number.name].band is None
            whose = f" of {number.band.origin}, which the base was judged by" if given else ""
            by_word.setdefault(f"{number.band.word}{whose}", []).append(number.name)
    return "; ".join(f"{', '.join(names)} {where} the {word}" for word, names in by_word.items())


def _is_unjudged(metrics: tuple[ComparedNumber, ...]) -> bool:
    """No band judges anything, and what counts is not all equal."""
    counting = [number for number in metrics if number.name not in _MEASURED]
    is_equal = bool(counting) and all(number.side == "same" for number in counting)
    return not is_equal and not any(number.band and number.side != "unknown" for number in metrics)


def _why_not(base: Record, this: Record, metrics: tuple[ComparedNumber, ...]) -> str:
    if base.run.project != this.run.project:
        return f"two projects: {base.run.project} and {this.run.project}"
    for record, other in ((base, this), (this, base)):
        if not record.metrics:
            alone = f" for {', '.join(sorted(other.metrics))}" if other.metrics else ""
            return f"{record.run.id} has no metrics{alone}: it {_ended(record)}"
    if base.inputs.data != this.inputs.data:
        return f"the data differ: {short(base.inputs.data)} and {short(this.inputs.data)}"
    if not metrics:
        return f"no metric in common: {', '.join(sorted(base.metrics))} and {', '.join(sorted(this.metrics))}"
    if _is_unjudged(metrics):
        return f"no band: {_FEW_SEEDS}"
    return ""


def _ended(record: Record) -> str:
    verdict = record.run.verdict or "has not ended"
    return verdict if verdict in ("passed", "failed", "has not ended") else f"was {verdict}"


def _costs(base: Record, this: Record) -> tuple[ComparedNumber, ...]:
    if base.plan is None or this.plan is None:
        return ()
    pairs = ((n, unit, getattr(base.plan.measured, n), getattr(this.plan.measured, n)) for n, unit in _COSTS)
    return tuple(
        ComparedNumber(name=name, unit=unit, base=before, this=after, of=trained_by(this))
        for name, unit, before, after in pairs
        if before is not None and after is not None
    )


def _plan_words(base: Record, this: Record) -> str:
    if base.plan is None or this.plan is None:
        return "no plan in one of them"
    same = base.plan.name == this.plan.name
    return f"{this.plan.name} unchanged" if same else f"{base.plan.name} -> {this.plan.name}"


def _unmatched(base: Record, this: Record) -> list[str]:
    """What `base` was judged on and `this` lacks."""
    return [name for name in _alone(base, this) if _is_judged(base, name)]


def _worse_by_commit(base: Record, this: Record, metrics: tuple[ComparedNumber, ...]) -> str | None:
    """A metric that is worse where a commit between them can be the cause: code, line or environment differ."""
    before, after = base.inputs, this.inputs
    is_same = (before.code, before.line, before.environment) == (after.code, after.line, after.environment)
    if base.commit.sha == this.commit.sha or is_same:
        return None
    return next(iter([*_broken(base, this), *(number.name for number in metrics if number.side == "worse")]), None)


Edges = tuple[float, float]
"""Lower and upper edge of a band at a step."""
_IN_A_ROW = 3


def curves_of(base: Record, this: Record, bands: Mapping[int, Edges]) -> ComparedCurves | None:
    """Both curves at common steps; None if one run has no curve, or they share fewer than two steps.

    Args:
        base: Whose seeds made `bands`.
        this: Its own points carry the band where `base` was its base at birth.
        bands: Of the base by step.
    """
    if base.curve.metric != this.curve.metric:
        return None
    before, after = ({point.step: point.value for point in record.curve.points} for record in (base, this))
    own = {p.step: (p.low, p.high) for p in this.curve.points if p.low is not None and p.high is not None}
    known = {**bands, **(own if this.commit.base is not None and this.commit.base.run == base.run.id else {})}
    steps = sorted(before.keys() & after.keys())
    alike = len(steps) == min(len(before), len(after))
    if not alike:
        steps = _wider(sorted(before), sorted(after))
        before, after = _thinned_curve(before, steps), _thinned_curve(after, steps)
        known = _thinned_bands(bands, steps)
    if len(steps) < 2:
        return None
    sides = [known.get(step) for step in steps]
    return ComparedCurves(
        metric=this.curve.metric,
        steps=tuple(steps),
        base=tuple(before[step] for step in steps),
        this=tuple(after[step] for step in steps),
        low=tuple(side[0] if side else None for side in sides) if known else (),
        high=tuple(side[1] if side else None for side in sides) if known else (),
        apart_from=_apart_from([after[step] for step in steps], steps, sides),
        equal=alike and all(before[step] == after[step] for step in steps),
    )


def _thinned_curve(values: Mapping[int, float], steps: Sequence[int]) -> dict[int, float]:
    """Means over other shares of the steps.

    Args:
        values: Last step of a share to the mean over it, in step order; each share begins where the one before ends.
        steps: Last step of each wanted share; none is beyond the last of `values`.
    """
    return {step: _mean(values, start, step) for start, step in pairwise((0, *steps))}


def _mean(values: Mapping[int, float], start: int, end: int) -> float:
    overlaps = ((min(end, step) - max(start, left), values[step]) for left, step in pairwise((0, *values)))
    inside = [(width, value) for width, value in overlaps if width > 0]
    return fsum(width * value for width, value in inside) / sum(width for width, _ in inside)


def _thinned_bands(bands: Mapping[int, Edges], steps: Sequence[int]) -> dict[int, Edges]:
    """Bands of the base, averaged over wider shares; there the seeds differ no more than that."""
    covered = [step for step in steps if step <= max(bands, default=0)]
    low, high = (_thinned_curve({step: bands[step][side] for step in sorted(bands)}, covered) for side in (0, 1))
    return {step: (low[step], high[step]) for step in covered}


def _wider(one: Sequence[int], other: Sequence[int]) -> list[int]:
    """Steps of the coarser curve, up to the end of the shorter one."""
    if not one or not other:
        return []
    wide = max(one, other, key=lambda steps: steps[-1] / len(steps))
    return [step for step in wide if step <= min(one[-1], other[-1])]


def _apart_from(values: Sequence[float], steps: Sequence[int], sides: Sequence[Edges | None]) -> int | None:
    streak = 0
    judged = [(step, value, side) for step, value, side in zip(steps, values, sides, strict=True) if side is not None]
    for at, (_, value, (low, high)) in enumerate(judged):
        streak = 0 if low <= value <= high else streak + 1
        if streak == _IN_A_ROW:
            return judged[at - _IN_A_ROW + 1][0]
    return None
