"""A comparison as one HTML file, with the look of the report, and as markdown for a summary page or a comment."""

from gangline.report.comparison import text
from gangline.report.comparison.text import curve_words, shown_numbers, spread_word, unchanged_words, unpinned_lines
from gangline.report.comparison.types import ComparedCurves, ComparedNumber, Comparison
from gangline.report.facts import SIDE_MARKS
from gangline.report.pages import render_page
from gangline.report.svg import Chart, curve_on_band
from gangline.report.text import change_words, code, markdown, percent, quantity
from gangline.spec.measurements import CurvePoint
from gangline.units import format_number

_TONES = {"BETTER": "passed", "SAME": "passed", "WORSE": "failed", "NOT COMPARABLE": "open"}


def render_html_comparison(comparison: Comparison) -> str:
    """The whole page."""
    shown, folded = shown_numbers(comparison)
    return render_page(
        "compare.html.j2",
        comparison=comparison,
        numbers=shown,
        folded=folded,
        labels=comparison.labels,
        tone=_TONES[comparison.outcome],
        chart=_chart(comparison.curves),
        unchanged=unchanged_words(comparison.unpinned),
        unpinned=unpinned_lines(comparison.unpinned),
        spread=spread_word(comparison),
        said=curve_words(comparison.curves) if comparison.curves else "",
    )


def _chart(curves: ComparedCurves | None) -> Chart | None:
    """This run on the base's band, the base as a thin line."""
    if curves is None:
        return None
    empty = (None,) * len(curves.steps)
    rows = zip(curves.steps, curves.this, curves.low or empty, curves.high or empty, strict=True)
    points = [CurvePoint(step=step, value=value, low=low, high=high) for step, value, low, high in rows]
    return curve_on_band(points, curves.metric, [curves.base])


_MARKS = {"BETTER": "✓", "SAME": "✓", "WORSE": "✗", "NOT COMPARABLE": "?"}
_SHOWN = 40


def render_markdown_comparison(comparison: Comparison) -> str:
    """Outcome, table, curves, changes; untrusted text is escaped."""
    parts = [f"**{_MARKS[comparison.outcome]} {comparison.outcome}** {markdown(comparison.why)}"]
    parts.append(_sides(comparison))
    parts += [
        _numbers(comparison),
        *map(markdown, text.alone_lines(comparison)),
        _curves(comparison),
        _changes(comparison),
        *(markdown(line, 300) for line in text.unpinned_lines(comparison.unpinned)),
        _files(comparison),
    ]
    parts.append(f"next: {code(comparison.next_command)}")
    return "\n\n".join(part for part in parts if part) + "\n"


def _sides(comparison: Comparison) -> str:
    rows = [
        f"{name}: {code(label.run, 60)} {markdown(label.subject, 100)}".rstrip()
        for name, label in zip(("base", "this"), comparison.labels, strict=False)
    ]
    return "  \n".join(rows)


def _numbers(comparison: Comparison) -> str:
    shown, folded = text.shown_numbers(comparison)
    numbers = (*shown, *comparison.costs)
    if not numbers:
        return ""
    rows = [f"|  | number | base | this | change | {text.spread_word(comparison)} |", "|--|--|--:|--:|--:|--:|"]
    return "\n".join([*rows, *map(_row, numbers)]) + (f"\n\n{folded}" if folded else "")


def _row(number: ComparedNumber) -> str:
    band = number.band
    spread = f"± {percent(band.half / abs(band.center))}" if band and band.center else "-"
    base, this = (markdown(quantity(each, number.unit)) for each in (band.center if band else number.base, number.this))
    this += f", of {markdown(number.of, 80)}" if number.of else ""
    mark = SIDE_MARKS[number.side] if band else ""
    name = markdown(number.name.removesuffix("_bytes").removesuffix("_seconds"), 40)
    return f"| {mark} | {name} | {base} | {this} | {change_words(number.change)} | {spread} |"


def _curves(comparison: Comparison) -> str:
    curves = comparison.curves
    if curves is None:
        return ""
    base, this = text.both_courses(curves, 24)
    ends = f"{format_number(curves.base[-1])} and {format_number(curves.this[-1])}"
    return f"{markdown(curves.metric)}: base {base}   this {this} {ends}; {text.curve_words(curves)}"


def _changes(comparison: Comparison) -> str:
    if not comparison.changes:
        return text.unchanged_words(comparison.unpinned)
    rows = ["| what changed |  | base | this |", "|--|--|--|--|"]
    for change in comparison.changes[:_SHOWN]:
        cells = ("line.toml" if change.kind == "line" else change.kind, change.name, change.base, change.this)
        rows.append(f"| {' | '.join(markdown(cell, 120) for cell in cells)} |")
    rest = len(comparison.changes) - _SHOWN
    return "\n".join(rows) + (f"\n\nand {rest} more" if rest > 0 else "")


def _files(comparison: Comparison) -> str:
    rows = [
        f"- {markdown(file.path, 200)}" + ("" if file.added is None else f" +{file.added} -{file.removed}")
        for file in comparison.files[:_SHOWN]
    ]
    rest = len(comparison.files) - _SHOWN
    return "\n".join([*rows, *([f"- and {rest} more"] if rest > 0 else [])])
