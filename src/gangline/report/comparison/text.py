"""Comparison in a terminal or build log: outcome, numbers, curves, changes, next step."""

from collections.abc import Sequence
from itertools import pairwise
from math import fsum

from gangline.report.comparison.types import Change, ComparedCurves, ComparedNumber, Comparison, FileChange
from gangline.report.facts import SIDE_MARKS
from gangline.report.text import change_words, clean, percent, quantity, shortened
from gangline.units import format_number, sparkline

WIDTH = 100
SHOWN_CHANGES, SHOWN_FILES, SHOWN_NUMBERS = 12, 10, 12
_COST_NAMES = {"step_seconds": "step time", "memory_bytes": "memory", "wall_seconds": "training", "gpu_hours": "cost"}


def render_comparison(comparison: Comparison, *, width: int = WIDTH) -> str:
    """Blocks with an empty line between them; no line is longer than `width`."""
    room = width - len(comparison.outcome) - 2
    blocks = [
        [f"{comparison.outcome}  {clean(comparison.why, room)}", *_labels(comparison, width)],
        [*_table(comparison), *(clean(line, width) for line in alone_lines(comparison))],
        _curve_lines(comparison.curves, width),
        _change_lines(comparison, width=width),
        [f"next  {comparison.next_command}"],
    ]
    return "\n\n".join("\n".join(line.rstrip() for line in block) for block in blocks if block)


def _labels(comparison: Comparison, width: int) -> list[str]:
    names = ("base", "this")
    return [
        f"{name}  {label.run}  {clean(label.subject, width - len(label.run) - 8)}"
        for name, label in zip(names, comparison.labels, strict=False)
    ]


def _table(comparison: Comparison) -> list[str]:
    shown, folded = shown_numbers(comparison)
    rows = [_metric_row(number) for number in shown]
    rows += [_cost_row(number) for number in comparison.costs]
    more = [f"  {folded}"] if folded else []
    if not rows:
        return [f"plan  {comparison.plan}", *more]
    rows.insert(0, ("", "", "base", "this", "change", ""))
    rows.append(("", "plan", comparison.plan, "", "", ""))
    return [*_aligned(rows), *more]


def shown_numbers(comparison: Comparison) -> tuple[list[ComparedNumber], str]:
    """Metrics with a band, then what differs, up to twelve; and a sentence on the others, which may be settings."""
    numbers = sorted(comparison.metrics, key=lambda number: (not number.band, number.this == number.base))
    count = max(SHOWN_NUMBERS, sum(number.band is not None for number in numbers))
    first = [number for number in numbers if "." not in number.name or number.band or number.this != number.base][
        :count
    ]
    others = [number for number in numbers if number not in first]
    equal = sum(number.this == number.base for number in others)
    more = f"and {len(others)} more metrics, {equal} of them equal: --json has all" if others else ""
    return [number for number in comparison.metrics if number in first], more


def spread_word(comparison: Comparison) -> str:
    """Head of the column of bands: what those of this comparison are."""
    words = {number.band.word for number in comparison.metrics if number.band}
    return " or ".join(sorted(words)) or "band"


def alone_lines(comparison: Comparison) -> list[str]:
    """Metrics that one run alone has, a line a run."""
    sides = (("base", comparison.only_base), ("this", comparison.only_this))
    return [f"only in {name}: {', '.join(names)}" for name, names in sides if names]


def _aligned(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Marks, names, then numbers to the right, the last column as it is; a long last row does not widen the others."""
    widths = [max(len(row[i]) for row in rows[:-1]) for i in range(5)]
    lines = []
    for mark, name, base, this, change, words in rows[:-1]:
        numbers = f"{base:>{widths[2]}}  {this:>{widths[3]}}  {change:>{widths[4]}}"
        lines.append(f"{mark:<1} {name:<{widths[1]}}  {numbers}  {words}")
    return [*lines, f"  {rows[-1][1]:<{widths[1]}}  {rows[-1][2]}"]


def _metric_row(number: ComparedNumber) -> tuple[str, ...]:
    band = number.band
    spread = f" ± {percent(band.half / abs(band.center))}" if band and band.center else ""
    base = f"{format_number(band.center)}{spread}" if band else quantity(number.base, number.unit)
    change = change_words(number.change)
    unjudged = "no gate judges it" if band else "not judged"
    same = f"within the {band.word}" if band else "equal"
    words = {"better": "better", "same": same, "worse": "worse"}.get(number.side, unjudged)
    return SIDE_MARKS[number.side], clean(number.name, 24), base, quantity(number.this, number.unit), change, words


def _cost_row(number: ComparedNumber) -> tuple[str, ...]:
    name = _COST_NAMES.get(number.name, number.name)
    base, this = quantity(number.base, number.unit), quantity(number.this, number.unit)
    return "", name, base, this, change_words(number.change), f"of {number.of}" if number.of else _pace(number)


def _pace(number: ComparedNumber) -> str:
    if number.name != "step_seconds" or not number.this:
        return ""
    speed = number.base / number.this
    return f"{speed:.1f} times as fast" if speed >= 1.05 else ""


def _curve_lines(curves: ComparedCurves | None, width: int) -> list[str]:
    """Both curves on one scale, how far this is above the base, and where they diverge."""
    if curves is None:
        return []
    marks = min(64, len(curves.steps), width - 24)
    base, this = both_courses(curves, marks)
    label = clean(curves.metric, 12)
    pad = " " * len(label)
    lines = [
        f"{label}  base {base}  {format_number(curves.base[-1])}",
        f"{pad}  this {this}  {format_number(curves.this[-1])}",
    ]
    if not curves.equal:
        gaps = [after - before for before, after in zip(curves.base, curves.this, strict=True)]
        last = format_number(curves.this[-1] - curves.base[-1])
        lines.append(f"{pad}  gap  {sparkline(gaps, marks)}  {last if last.startswith('-') else f'+{last}'}")
    return [*lines, f"{pad}  {curve_words(curves)}"]


def both_courses(curves: ComparedCurves, marks: int) -> tuple[str, str]:
    """Base and this in at most so many marks, on one scale."""
    count = min(marks, len(curves.steps))
    drawn = sparkline([*_thin(curves.base, count), *_thin(curves.this, count)], 2 * count)
    return drawn[:count], drawn[count:]


def _thin(values: Sequence[float], count: int) -> list[float]:
    edges = [len(values) * i // count for i in range(count + 1)]
    return [fsum(values[a:b]) / (b - a) for a, b in pairwise(edges)]


def curve_words(curves: ComparedCurves) -> str:
    """One clause on how two curves relate."""
    if curves.equal:
        return f"the same to the last bit at all {len(curves.steps)} points"
    if not curves.low:
        return "no band to judge the curve by: the base trained fewer than three seeds"
    if curves.apart_from is None:
        return "within the band of the base to the end"
    return f"they part at step {curves.apart_from:,}: outside the band of the base from there"


def _change_lines(comparison: Comparison, *, width: int = WIDTH) -> list[str]:
    """`one change: line.toml model.width 128 -> 64`, or a line each, at most twelve; then files with their counts."""
    said = [_fitted(change, width - 16) for change in comparison.changes]
    listed = _listed(said) if said else [unchanged_words(comparison.unpinned)]
    lines = [clean(line, width - 2) for line in [*listed, *unpinned_lines(comparison.unpinned)]]
    return lines + file_lines(comparison.files, width=width)


def _fitted(change: Change, width: int) -> str:
    """One line with both values, each part shortened in its middle where the whole is longer than `width`."""
    texts = [f"{_place(change)} {clean(change.name)}", clean(change.base), clean(change.this)]
    while (excess := sum(map(len, texts)) + len("  -> ") - width) > 0 and max(map(len, texts)) > _LEAST:
        longest = max(range(3), key=lambda place: len(texts[place]))
        texts[longest] = shortened(texts[longest], max(_LEAST, len(texts[longest]) - excess))
    return f"{texts[0]} {texts[1]} -> {texts[2]}"


_LEAST = 12
"""Characters to which a part of a line may be shortened."""


def unchanged_words(unpinned: Sequence[str]) -> str:
    """Sentence of a comparison without changes, for terminals, markdown and pages."""
    if unpinned:
        return "nothing that records have changed: same line, code, environment, plan and declared data"
    return "nothing changed: same line, code, environment, data and plan"


def unpinned_lines(unpinned: Sequence[str]) -> list[str]:
    """What may have changed without a record of it, a line each."""
    return [f"may have changed, too: {each}" for each in unpinned]


def _listed(said: list[str]) -> list[str]:
    if len(said) == 1:
        return [f"one change: {said[0]}"]
    rest = len(said) - SHOWN_CHANGES
    shown = [f"- {line}" for line in said[:SHOWN_CHANGES]]
    return [f"{len(said)} changes:", *shown, *([f"- and {rest} more"] if rest > 0 else [])]


def file_lines(files: Sequence[FileChange], *, width: int = WIDTH) -> list[str]:
    """`2 files, +14 -3:` and a line each, most changed first."""
    if not files:
        return []
    added, removed = (sum(getattr(file, name) or 0 for file in files) for name in ("added", "removed"))
    counted = any(file.added is not None for file in files)
    many = "1 file" if len(files) == 1 else f"{len(files)} files"
    ordered = sorted(files, key=lambda file: (-(file.added or 0) - (file.removed or 0), file.path))
    lines = [f"{many}{f', +{added} -{removed}' if counted else ''}:"]
    lines += [f"- {_file_words(change, width - 16)}" for change in ordered[:SHOWN_FILES]]
    rest = len(files) - SHOWN_FILES
    return lines + ([f"- and {rest} more"] if rest > 0 else [])


def _file_words(each: FileChange, room: int) -> str:
    counts = "" if each.added is None else f"  +{each.added} -{each.removed}"
    return f"{clean(each.path, room)}{counts}"


def _place(change: Change) -> str:
    return "line.toml" if change.kind == "line" else change.kind
