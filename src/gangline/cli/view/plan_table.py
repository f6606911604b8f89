"""Table of plan candidates: memory, time and cost of each, and why it was chosen or rejected."""

import textwrap
from collections.abc import Sequence

from gangline.cli.output import columns
from gangline.report.text import clean, step_time
from gangline.spec.plan import Candidate
from gangline.units import format_bytes, format_number, format_seconds

MOST_ROWS = 8
"""Unless all are asked for."""
_HEADER = ("PLAN", "", "MEMORY", "STEP", "TIME", "MONEY", "WHY")
_MONEY = _HEADER.index("MONEY")
_LEAST_ROOM = 36
"""Least width of a reason next to its numbers; with less it goes below them."""
_MOST_LETTERS = 160
_INDENT = " " * 4
_WORDS = {"chosen": "✓ chosen", "runner_up": "runner-up"}


def candidate_table(candidates: Sequence[Candidate], *, width: int | None, every: bool) -> str:
    """Best first, the chosen one marked.

    Args:
        candidates: As they are ranked.
        width: Of the terminal; None: no terminal, and a reason is one line.
        every: Also those far behind.
    """
    shown = candidates if every else candidates[:MOST_ROWS]
    rows = [_HEADER, *(_row(each) for each in shown)]
    if all(each.forecast.money in (None, 0.0) for each in shown):
        rows = [(*row[:_MONEY], *row[_MONEY + 1 :]) for row in rows]
    lines = _lines(rows, width)
    if left := len(candidates) - len(shown):
        lines.append(f"{left} more: gangline plan --why")
    return "\n".join(lines)


def _lines(rows: Sequence[tuple[str, ...]], width: int | None) -> list[str]:
    numbers = columns([(*row[:-1], "") for row in rows]).splitlines()
    start = max(map(len, columns([(*row[:-1], "|") for row in rows]).splitlines())) - 1
    reasons = [clean(row[-1], _MOST_LETTERS) for row in rows]
    if width is None:
        return [f"{line.ljust(start)}{reason}" for line, reason in zip(numbers, reasons, strict=True)]
    if width - start < _LEAST_ROOM:
        below = (textwrap.wrap(each, width, initial_indent=_INDENT, subsequent_indent=_INDENT) for each in reasons[1:])
        return [numbers[0], *(part for line, why in zip(numbers[1:], below, strict=True) for part in (line, *why))]
    beside = (textwrap.wrap(each, width - start) or [""] for each in reasons)
    return [
        f"{line if number == 0 else '':{start}}{part}".rstrip()
        for line, why in zip(numbers, beside, strict=True)
        for number, part in enumerate(why)
    ]


def _row(candidate: Candidate) -> tuple[str, ...]:
    """What is not known is a dash, never a guess."""
    forecast = candidate.forecast
    word = _WORDS.get(candidate.verdict, candidate.verdict.replace("_", " "))
    return (
        candidate.name,
        word,
        format_bytes(forecast.memory_bytes) if forecast.memory_bytes is not None else "-",
        step_time(forecast.step_seconds) if forecast.step_seconds is not None else "-",
        format_seconds(forecast.wall_seconds) if forecast.wall_seconds is not None else "-",
        _money(forecast.money),
        candidate.reason.removeprefix("no fit: "),
    )


def _money(money: float | None) -> str:
    if money is None:
        return "-"
    return f"{money:.2f}" if 0.01 <= money < 1000 else format_number(money)
