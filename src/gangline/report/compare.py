"""Compares two records and nothing else: which is better, by which numbers against which bands, and what changed."""

from dataclasses import dataclass
from typing import Any, Literal

from gangline.report.facts import Side, first_outside, side_of
from gangline.report.text import short
from gangline.spec.record import Band, Metric, Record

Outcome = Literal["BETTER", "SAME", "WORSE", "NOT COMPARABLE"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Number:
    """One quantity in both runs."""

    name: str
    base: float
    this: float
    unit: str = ""
    band: Band | None = None
    side: Side = "unknown"
    """Of the band; `unknown` where there is none. Only metrics decide the outcome, time and memory never do."""

    @property
    def change(self) -> float | None:
        return self.this / self.base - 1 if self.base else None


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    kind: Literal["line", "code", "package", "environment", "data", "plan", "seed"]
    name: str
    base: str
    this: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    base: str
    """Run id."""
    this: str
    outcome: Outcome
    why: str
    metrics: tuple[Number, ...]
    costs: tuple[Number, ...]
    """Step time, memory, GPU-hours, as measured."""
    changes: tuple[Change, ...]
    plan: str
    outside_from: int | None
    """Step from which the training curve leaves the base's band."""
    next_command: str


def compare(base: Record, this: Record) -> Comparison:
    """How `this` did against `base`, judged on the bands that `base` learned."""
    metrics = tuple(
        _number(name, metric, this.metrics[name], base.run.id)
        for name, metric in sorted(base.metrics.items())
        if name in this.metrics
    )
    outcome, why = _outcome(base, this, metrics)
    is_base = this.commit.base is not None and this.commit.base.run == base.run.id
    return Comparison(
        base=base.run.id,
        this=this.run.id,
        outcome=outcome,
        why=why,
        metrics=metrics,
        costs=_costs(base, this),
        changes=tuple(_changes(base, this)),
        plan=_plan_words(base, this),
        outside_from=first_outside(this) if is_base else None,
        next_command=_next(outcome, base, this, metrics),
    )


def _number(name: str, base: Metric, this: Metric, base_run: str) -> Number:
    inherited = this.base_band if this.base_band and this.base_band.origin == base_run else None
    band = base.band or inherited
    side = side_of(this.value, band, this.better or base.better)
    if side == "unknown" and this.value == base.value:
        side = "same"
    return Number(name=name, base=base.value, this=this.value, unit=this.unit, band=band, side=side)


def _outcome(base: Record, this: Record, metrics: tuple[Number, ...]) -> tuple[Outcome, str]:
    if reason := _why_not(base, this, metrics):
        return "NOT COMPARABLE", reason
    for side, outcome in (("worse", "WORSE"), ("better", "BETTER")):
        names = [number.name for number in metrics if number.side == side]
        if names:
            return ("WORSE" if outcome == "WORSE" else "BETTER"), f"{', '.join(names)} outside the band"
    inside = [number.name for number in metrics if number.side == "same"]
    return "SAME", f"{', '.join(inside)} within the band"


def _why_not(base: Record, this: Record, metrics: tuple[Number, ...]) -> str:
    if base.run.project != this.run.project:
        return f"two projects: {base.run.project} and {this.run.project}"
    for record in (base, this):
        if not record.metrics:
            return f"{record.run.id} has no metrics: it {record.run.verdict or 'has not ended'}"
    if base.inputs.data != this.inputs.data:
        return f"the data differ: {short(base.inputs.data)} and {short(this.inputs.data)}"
    if not metrics:
        return f"no metric in common: {', '.join(sorted(base.metrics))} and {', '.join(sorted(this.metrics))}"
    if all(number.side == "unknown" for number in metrics):
        return "no band: the base evaluated fewer than three seeds"
    return ""


def _costs(base: Record, this: Record) -> tuple[Number, ...]:
    if base.plan is None or this.plan is None:
        return ()
    fields = (("step_seconds", "s"), ("memory_bytes", "B"), ("gpu_hours", "GPU-h"), ("money", ""))
    pairs = ((n, unit, getattr(base.plan.measured, n), getattr(this.plan.measured, n)) for n, unit in fields)
    return tuple(
        Number(name=name, unit=unit, base=before, this=after)
        for name, unit, before, after in pairs
        if before is not None and after is not None
    )


def _changes(base: Record, this: Record) -> list[Change]:
    changes = [_change("line", *row) for row in _differences(base.inputs.values, this.inputs.values)]
    changes += [_change("package", *row) for row in _differences(base.inputs.versions, this.inputs.versions)]
    digests = (
        ("code", _code_words(base, this), base.inputs.code, this.inputs.code),
        ("environment", "digest", base.inputs.environment, this.inputs.environment),
        ("data", "digest", base.inputs.data, this.inputs.data),
    )
    changes += [_change(kind, name, short(a), short(b)) for kind, name, a, b in digests if a != b]
    if base.inputs.seeds != this.inputs.seeds:
        changes.append(_change("seed", "seeds", list(base.inputs.seeds), list(this.inputs.seeds)))
    if base.plan and this.plan and base.plan.name != this.plan.name:
        changes.append(_change("plan", "name", base.plan.name, this.plan.name))
    return changes


def _change(kind: Any, name: str, base: Any, this: Any) -> Change:
    return Change(kind=kind, name=name, base=str(base), this=str(this))


def _differences(base: dict[str, Any], this: dict[str, Any]) -> list[tuple[str, Any, Any]]:
    names = sorted(base.keys() | this.keys())
    return [(n, base.get(n, "-"), this.get(n, "-")) for n in names if base.get(n) != this.get(n)]


def _code_words(base: Record, this: Record) -> str:
    if this.commit.base and this.commit.base.run == base.run.id and this.commit.changed:
        shown = ", ".join(this.commit.changed[:5])
        rest = len(this.commit.changed) - 5
        return shown + (f" and {rest} more" if rest > 0 else "")
    return "digest"


def _plan_words(base: Record, this: Record) -> str:
    if base.plan is None or this.plan is None:
        return "no plan in one of them"
    same = base.plan.name == this.plan.name
    return f"{this.plan.name} unchanged" if same else f"{base.plan.name} -> {this.plan.name}"


def _next(outcome: Outcome, base: Record, this: Record, metrics: tuple[Number, ...]) -> str:
    if outcome != "NOT COMPARABLE":
        return f"gangline report {this.run.id} --open"
    if metrics and all(number.side == "unknown" for number in metrics):
        return f"set evaluate.seeds = 3, then: gangline run --commit {short(base.commit.sha)} --again"
    if metrics and base.run.project == this.run.project:
        return f"the base on the data of today: gangline run --commit {short(base.commit.sha)} --again"
    return f"gangline show {(base if not base.metrics else this).run.id}"
