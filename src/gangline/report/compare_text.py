"""A comparison as the few lines that a terminal or a build log shows."""

from gangline.report.compare import Change, Comparison, Number
from gangline.report.text import clean, percent, quantity
from gangline.units import format_number


def render_comparison(comparison: Comparison) -> str:
    """Outcome first, then numbers, costs, what changed, and the next command."""
    words = [_metric_words(number) for number in comparison.metrics if number.side != "unknown"]
    if comparison.outside_from is not None:
        words.append(f"the curve leaves the band from step {comparison.outside_from:,}")
    head = " · ".join(words) if comparison.outcome != "NOT COMPARABLE" else comparison.why
    rows = [(comparison.outcome, head or comparison.why), ("", " · ".join(_costs_and_plan(comparison)))]
    rows += [("", line) for line in change_lines(comparison.changes)]
    rows.append(("next", comparison.next_command))
    pad = max(len(left) for left, _ in rows) + 2
    return "\n".join(f"{left:<{pad}}{clean(right, 300)}" for left, right in rows if right)


def change_lines(changes: tuple[Change, ...]) -> list[str]:
    """`one change: line.toml model.width 128 -> 64`, or a line each, at most twelve."""
    if not changes:
        return ["nothing changed: same line, code, environment, data and plan"]
    said = [f"{_place(change)} {change.name} {change.base} -> {change.this}" for change in changes]
    if len(said) == 1:
        return [f"one change: {said[0]}"]
    rest = [f"and {len(said) - 12} more"] if len(said) > 12 else []
    return [f"{len(said)} changes:", *(f"  {line}" for line in said[:12]), *rest]


def _place(change: Change) -> str:
    return "line.toml" if change.kind == "line" else change.kind


def _metric_words(number: Number) -> str:
    band = number.band
    against = format_number(band.center if band else number.base)
    spread = f" ± {percent(band.half / abs(band.center))}" if band and band.center else ""
    where = {"same": "within the band", "unknown": "no band"}.get(number.side, "outside the band")
    return f"{number.name} {quantity(number.this, number.unit)} against {against}{spread}: {where}"


def _costs_and_plan(comparison: Comparison) -> list[str]:
    words = [_cost_words(number) for number in comparison.costs]
    return [*filter(None, words), f"plan {comparison.plan}"]


def _cost_words(number: Number) -> str:
    if number.change is None:
        return ""
    if number.name == "step_seconds":
        speed = number.base / number.this - 1 if number.this else 0.0
        return f"{speed + 1:.1f} times as fast" if speed > 1 else f"{_pace(speed)} {percent(abs(speed))}"
    name = number.name.removesuffix("_bytes").replace("_", " ")
    return f"{name} {percent(number.change, signed=True)}"


def _pace(speed: float) -> str:
    return "faster" if speed >= 0 else "slower"
