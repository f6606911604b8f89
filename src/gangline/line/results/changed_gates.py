"""What a commit changes of the quality gates that judge it, since its base: one that it loosens lets it pass."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from gangline.spec.codec import to_plain
from gangline.spec.config.line import QualityGate
from gangline.spec.record import Gate, Record
from gangline.units import format_number

_PREFIX = "quality:"


def with_changes(judged: Iterable[Gate], ours: Iterable[QualityGate], base: Record, record: Record) -> Iterator[Gate]:
    """`judged`, with what changed since `base`; then the metrics that only its line judges, as unknown."""
    before = _by_metric(base.inputs.values.get("gate.quality"))
    now = _by_metric([to_plain(each) for each in ours])
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
