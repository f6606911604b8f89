"""Table of plans of a model known by its shape: memory bars by cause, seconds, money, one reason each."""

import textwrap
from collections.abc import Mapping, Sequence

from gangline.cli.view.plan_table import MOST_ROWS
from gangline.planner.cost.interruptions import StorageCost
from gangline.report.text import clean, percent
from gangline.spec.forecast import Forecast, MemoryCause
from gangline.spec.plan import Candidate
from gangline.units import format_seconds

CAUSES = {
    "weights": "wgt",
    "gradients": "grad",
    "optimizer": "optm",
    "activations": "activ",
    "buffers": "buf",
    "updates": "upd",
}
_WIDE = 100
"""Columns that the bytes of each cause have room in."""
_MARKS = 20
"""Length of the bar of a whole device."""
_LETTERS = {
    "weights": "W", "gradients": "G", "optimizer": "O", "activations": "A", "gathered": "B", "buffers": "B",
    "updates": "U",
}  # fmt: skip


def formula_table(
    candidates: Sequence[Candidate],
    settings: Mapping[str, str],
    *,
    capacity_bytes: float,
    width: int | None,
    every: bool,
) -> str:
    """The chosen plan first.

    Args:
        candidates: As they are ranked.
        settings: Names with the way that each is run.
        capacity_bytes: Of one device.
        width: Of the terminal; None: no terminal, and a reason follows its numbers on the same line.
        every: Also those far behind.
    """
    shown = candidates if every else shown_rows(candidates)
    name_width = max(len(settings.get(each.name, each.name)) for each in shown)
    mark = f"{capacity_bytes / 20 / 1e9:.0f} GB a mark"
    causes = [each for each in CAUSES if each != "updates" or _has_updates(shown)]
    header = f"  {'plan':{name_width}} {'memory, ' + mark:21}"
    header += (
        "".join(f"{word:>6}" for word in (*(CAUSES[each] for each in causes), "total")) + f"{'step':>8}{'money':>8}"
    )
    rows = [
        header
        if width is None or width >= _WIDE
        else header[: name_width + 25] + f"{'total':>6}{'step':>8}{'money':>8}"
    ]
    for each in shown:
        rows += _row(each, settings.get(each.name, each.name), name_width, capacity_bytes, width, shown=causes)
    if left := len(candidates) - len(shown):
        rows.append(f"  {left} more: gangline plan --why")
    return "\n".join(rows)


def shown_rows(candidates: Sequence[Candidate]) -> list[Candidate]:
    """The nearest, those that ranks here run first, and of what does not fit the nearest two."""
    fits = [each for each in candidates if each.verdict != "no_fit"]
    runs = [each for each in fits if each.verdict != "unsupported"]
    others = [each for each in fits if each.verdict == "unsupported"]
    misses = [each for each in candidates if each.verdict == "no_fit"]
    return [*runs[: MOST_ROWS - 4], *others[:2], *misses[:2]]


def _has_updates(shown: Sequence[Candidate]) -> bool:
    return any(cause.cause == "updates" for each in shown for cause in each.forecast.memory_causes)


def _row(
    candidate: Candidate, name: str, name_width: int, capacity_bytes: float, width: int | None, *, shown: Sequence[str]
) -> list[str]:  # fmt: skip
    forecast = candidate.forecast
    star = "*" if candidate.verdict == "chosen" else " "
    by_cause = {each.cause: each.size_bytes for each in forecast.memory_causes}
    known = forecast.memory_bytes is not None
    total = f"{(forecast.memory_bytes or 0) / 1e9:6.1f}" if known else f"{'-':>6}"
    bar = memory_bar(forecast.memory_causes, capacity_bytes)
    has_time = candidate.verdict != "no_fit" and forecast.step_seconds is not None
    seconds = f"{forecast.step_seconds:8.2f}" if has_time else f"{'-':>8}"
    money = f"{forecast.money:8.0f}" if has_time and forecast.money is not None else f"{'-':>8}"
    reason = clean(candidate.reason.removeprefix("no fit: "), 160)
    word = candidate.verdict.replace("_", " ")
    reason = f"{word}: {reason}" if candidate.verdict in ("no_fit", "unsupported") else reason
    start = f"{star} {name:{name_width}} {bar}"
    causes = "".join(f"{by_cause.get(each, 0.0) / 1e9:6.1f}" if known else f"{'-':>6}" for each in shown)
    numbers = f"{start}{causes if width is None or width >= _WIDE else ''}{total}{seconds}{money}"
    if width is None:
        return [f"{numbers}  {reason}"]
    return [numbers, *textwrap.wrap(reason, width - 4, initial_indent="    ", subsequent_indent="    ")]


def storage_lines(costs: Sequence[StorageCost], saves_to: str | None) -> list[str]:
    """What saves to each class of storage would cost; the one that is counted is marked."""
    lines = []
    for each in costs:
        interval = "once" if each.interval_seconds == float("inf") else f"every {format_seconds(each.interval_seconds)}"
        counted = ", counted" if each.storage == saves_to else ""
        lines.append(
            f"{each.storage}: {format_seconds(each.write_seconds)} a save, {interval}, "
            f"{percent(1 - each.effective_share)} of the time lost{counted}"
        )
    return lines


def interruption_words(forecast: Forecast, failures: object) -> str:
    """`P(interrupt) 0.4 % (llama3)`; empty: not requested."""
    if forecast.interrupt_probability is None:
        return ""
    source = failures if isinstance(failures, str) else "given"
    return f"P(interrupt) {percent(forecast.interrupt_probability)} ({source})"


def memory_bar(causes: Sequence[MemoryCause], capacity_bytes: float) -> str:
    """`WOAAAAAAAAAAAAABB···`: each cause ends at the nearest mark; `>` at the end: there is more than the device has.

    Args:
        causes: In the order of the bar.
        capacity_bytes: Of the device.
    """
    bar, upto = "", 0.0
    for each in sorted(causes, key=lambda cause: list(_LETTERS).index(cause.cause)):
        upto += each.size_bytes
        bar += _LETTERS[each.cause] * (round(upto / capacity_bytes * _MARKS) - len(bar))
    return f"{bar[:_MARKS]}>" if len(bar) > _MARKS else bar.ljust(_MARKS, "·") + " "
