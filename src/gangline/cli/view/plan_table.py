"""Table of the plans that were considered: verdict, bar and causes of memory, step, time, money and the one reason."""

import textwrap
from collections.abc import Callable, Iterator, Sequence

from gangline.report.text import clean
from gangline.spec.forecast import MemoryCause
from gangline.spec.plan import Candidate
from gangline.units import format_bytes, format_seconds, format_step

Row = tuple[str, Candidate]
"""A candidate, after the name that tells it from all others."""

MOST_ROWS = 8
"""Rows of a table, unless all are asked for."""
_MARKS = 20
"""Length of the bar of a whole device."""
_CAUSES = {
    "weights": ("W", "WGT"), "gradients": ("G", "GRAD"), "optimizer": ("O", "OPTM"), "activations": ("A", "ACTIV"),
    "gathered": ("B", "GATH"), "buffers": ("B", "BUF"), "updates": ("U", "UPD"),
}  # fmt: skip
"""Letter of a cause in the bar, and head of its column; in the order of both."""
_VERDICTS = {"chosen": "✓ chosen", "runner_up": "runner-up", "no_fit": "✗"}
"""Marks that are not the verdict itself; the reason of a plan without room begins with its words."""
_UNITS = (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3))
_LEAST_ROOM = 32
"""Least width of a reason next to its numbers; with less it goes below them."""
_MOST_LETTERS = 160
_INDENT = " " * 4
_GAP = "  "


Column = list[str]
"""A head and its cells, equally wide."""


def plan_table(rows: Sequence[Row], *, capacity_bytes: float, width: int | None, every: bool) -> str:
    """The chosen plan first; bytes of each cause and the bar as far as they are known and the width allows.

    Args:
        rows: As they are ranked.
        capacity_bytes: Memory of one device; 0: not known, and there are no bars.
        width: Columns of the terminal; None: there is none, and a row is one line.
        every: Show also those far behind.
    """
    shown = rows if every else nearest_rows(rows)
    bars = [memory_bar(candidate.forecast.memory_causes, capacity_bytes) for _, candidate in shown]
    has_bars = any(bar.strip("·") for bar in bars)
    reasons = [clean(candidate.reason, _MOST_LETTERS) for _, candidate in shown]
    lines = _lines(shown, bars if has_bars else [], reasons, width)
    if has_bars:
        present = {cause.cause for _, candidate in shown for cause in candidate.forecast.memory_causes}
        letters = ", ".join(f"{letter} {cause}" for cause, (letter, _) in _CAUSES.items() if cause in present)
        legend = f"a mark of a bar is {format_bytes(capacity_bytes / _MARKS)} of a device: {letters}"
        lines += textwrap.wrap(legend, width or len(legend))
    if left := len(rows) - len(shown):
        lines.append(f"{left:,} more: gangline plan --why")
    return "\n".join(lines)


def nearest_rows(rows: Sequence[Row]) -> list[Row]:
    """The best of those that ranks here run, then two of what they do not run and two of what does not fit."""
    apart = ("unsupported", "no_fit")
    others = [[row for row in rows if row[1].verdict == verdict][:2] for verdict in apart]
    runs = [row for row in rows if row[1].verdict not in apart]
    return [*runs[: MOST_ROWS - sum(map(len, others))], *others[0], *others[1]]


def memory_bar(causes: Sequence[MemoryCause], capacity_bytes: float) -> str:
    """`WOAAAAAAAAAAAAABB···`: each cause ends at the nearest mark; `>` at the end: there is more than the device has.

    Args:
        causes: What a rank holds; none: not known, and there is no bar.
        capacity_bytes: Memory of the device; 0: not known, likewise.
    """
    if not causes or not capacity_bytes:
        return ""
    bar, upto = "", 0.0
    for memory_cause in sorted(causes, key=lambda cause: list(_CAUSES).index(cause.cause)):
        upto += memory_cause.size_bytes
        bar += _CAUSES[memory_cause.cause][0] * (round(upto / capacity_bytes * _MARKS) - len(bar))
    return f"{bar[:_MARKS]}>" if len(bar) > _MARKS else bar.ljust(_MARKS, "·")


def _lines(shown: Sequence[Row], bars: Sequence[str], reasons: Sequence[str], width: int | None) -> list[str]:
    """The rows with as much of their memory as has room: reasons next to the numbers, else below them after the bar."""
    verdicts = [_VERDICTS.get(candidate.verdict, candidate.verdict.replace("_", " ")) for _, candidate in shown]
    start = [_column("PLAN", [name for name, _ in shown], str.ljust), _column("", verdicts, str.ljust)]
    bar = [_column("", bars, str.ljust)] if bars else []
    (total, *causes), (step, time, *money) = _memory(shown), _cost(shown)
    numbers = [total, step, time, *money]
    if width is None:
        return _beside([*start, *bar, *causes, *numbers], reasons, width)
    for columns in ([*start, *bar, *causes, *numbers], [*start, *bar, *numbers]):
        if width - _width(columns) - len(_GAP) >= _LEAST_ROOM:
            return _beside(columns, reasons, width)
    narrow = [*start, total, step, *money]
    fitting = (each for each in ([*start, *causes, *numbers], [*start, *numbers]) if _width(each) <= width)
    return _below(next(fitting, narrow), bars, reasons, width)


def _column(head: str, cells: Sequence[str], align: Callable[[str, int], str] = str.rjust) -> Column:
    width = max(map(len, (head, *cells)))
    return [align(each, width) for each in (head, *cells)]


def _width(columns: Sequence[Column]) -> int:
    return sum(len(head) + len(_GAP) for head, *_ in columns) - len(_GAP)


def _beside(columns: Sequence[Column], reasons: Sequence[str], width: int | None) -> list[str]:
    heads, *rows = (_GAP.join(cells) + _GAP for cells in zip(*columns, strict=True))
    lines = [f"{heads}WHY"]
    for row, reason in zip(rows, reasons, strict=True):
        first, *more = [reason] if width is None else textwrap.wrap(reason, width - len(row)) or [""]
        lines += [f"{row}{first}".rstrip(), *(" " * len(row) + part for part in more)]
    return lines


def _below(columns: Sequence[Column], bars: Sequence[str], reasons: Sequence[str], width: int) -> list[str]:
    heads, *rows = (_GAP.join(cells).rstrip() for cells in zip(*columns, strict=True))
    lines = [heads]
    for row, bar, reason in zip(rows, bars or [""] * len(rows), reasons, strict=True):
        first = f"{_INDENT}{bar:{_MARKS + 1}} " if bars else _INDENT
        lines += [row, *textwrap.wrap(reason, width, initial_indent=first, subsequent_indent=" " * len(first))]
    return lines


def _memory(shown: Sequence[Row]) -> Iterator[Column]:
    """Memory in the unit of the first row that has it, then each cause that some row has."""
    sizes = [candidate.forecast.memory_bytes for _, candidate in shown]
    first = next((size for size in sizes if size), 0)
    unit, scale = next((each for each in _UNITS if first >= each[1]), ("B", 1.0))
    yield _column(f"MEMORY {unit}", ["-" if size is None else f"{size / scale:.1f}" for size in sizes])
    by_cause = [
        {memory_cause.cause: memory_cause.size_bytes for memory_cause in row.forecast.memory_causes} for _, row in shown
    ]
    for cause, (_, head) in _CAUSES.items():
        if any(cause in each for each in by_cause):
            yield _column(head, [f"{each.get(cause, 0.0) / scale:.1f}" if each else "-" for each in by_cause])


def _cost(shown: Sequence[Row]) -> Iterator[Column]:
    """Step, training and money; a plan without room has none, and what is not known is a dash, never a guess."""
    forecasts = [None if candidate.verdict == "no_fit" else candidate.forecast for _, candidate in shown]
    steps, times, money = (
        [getattr(forecast, name) if forecast else None for forecast in forecasts]
        for name in ("step_seconds", "wall_seconds", "money")
    )
    yield _column("STEP", ["-" if step is None else step_words(step) for step in steps])
    yield _column("TIME", ["-" if time is None else format_seconds(time) for time in times])
    if any(money):
        yield _column("MONEY", ["-" if each is None else money_words(each) for each in money])


def step_words(seconds: float) -> str:
    """Seconds of a step to two digits behind the point, less than one in milliseconds: steps differ by little."""
    return f"{seconds:.2f} s" if 1 <= seconds < 1000 else format_step(seconds)


def money_words(money: float) -> str:
    """`12,340`, `423.11`, `<0.01`."""
    if money >= 1000:
        return f"{money:,.0f}"
    return f"{money:.2f}" if money >= 0.01 or not money else "<0.01"
