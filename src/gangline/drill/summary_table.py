"""Summary of all drills as a table: promise, observation, times, verdict. Pure."""

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from gangline.drill.catalogue import DRILLS
from gangline.spec.measurements import Drill

_HEAD = ("drill", "row", "promised", "seen", "detect", "recover", "verdict")
_FIXED = (11, 3, 0, 0, 7, 7, 10)
"""Widths of the columns; the two of width 0 share the rest."""
_LEAST = 22
_VERDICTS = ("HELD", "HELD LATE", "BROKEN", "NOT STRUCK", "SKIPPED")


@dataclass(frozen=True, kw_only=True, slots=True)
class SkippedDrill:
    """A drill that cannot run here."""

    name: str
    row: str
    skipped: str
    """The reason."""


DrillRow = Drill | SkippedDrill


def drill_table(found: Sequence[DrillRow], *, width: int) -> list[str]:
    """Lines of at most `width` columns, at least 96; long texts are wrapped."""
    text = max(_LEAST, (width - sum(_FIXED) - 2 * (len(_FIXED) - 1)) // 2)
    widths = [each or text for each in _FIXED]
    lines = _row(_HEAD, widths)
    lines.append("  ".join("-" * each for each in widths))
    for each in found:
        lines += _row(_cells(each), widths)
    return [*lines, _totals(found)]


def verdict_text(found: DrillRow) -> str:
    """HELD, HELD LATE, BROKEN, NOT STRUCK or SKIPPED."""
    return "SKIPPED" if isinstance(found, SkippedDrill) else found.result.replace("_", " ").upper()


def describe_seconds(value: float | None) -> str:
    """`1.2 s`, or `-` for None."""
    return "-" if value is None else f"{value:.1f} s"


def _cells(found: DrillRow) -> tuple[str, ...]:
    promised = DRILLS[found.name].target.removeprefix("target").removeprefix(":").strip()
    if isinstance(found, SkippedDrill):
        return found.name, found.row, promised, found.skipped, "-", "-", verdict_text(found)
    detect, recover = describe_seconds(found.detect_seconds), describe_seconds(found.recover_seconds)
    return found.name, found.row, promised, _observation(found), detect, recover, verdict_text(found)


def _observation(drill: Drill) -> str:
    """The broken promise, or the detection with its cost."""
    if drill.reason:
        return drill.reason
    lost = [f"{drill.lost_steps} steps lost"] if drill.lost_steps else []
    samples = []
    if drill.lost_samples is not None:
        samples = [f"{drill.lost_samples} samples lost, {drill.repeated_samples} twice"]
    return "; ".join([*([drill.seen] if drill.seen else []), *lost, *samples])


def _row(cells: Sequence[str], widths: Sequence[int]) -> list[str]:
    wrapped = [textwrap.wrap(cell, width) or [""] for cell, width in zip(cells, widths, strict=True)]
    lines = []
    for number in range(max(map(len, wrapped))):
        parts = (each[number] if number < len(each) else "" for each in wrapped)
        lines.append("  ".join(p.ljust(w) for p, w in zip(parts, widths, strict=True)).rstrip())
    return lines


def _totals(found: Sequence[DrillRow]) -> str:
    verdicts = [verdict_text(each) for each in found]
    counts = [f"{verdicts.count(word)} {word.lower()}" for word in _VERDICTS]
    drills = [each for each in found if isinstance(each, Drill)]
    lost = sum(each.lost_samples or 0 for each in drills)
    twice = sum(each.repeated_samples or 0 for each in drills)
    counted = sum(each.lost_samples is not None for each in drills)
    samples = f"samples lost {lost}, taken twice {twice}, counted in {counted} of {len(drills)} trainings"
    return f"{', '.join(counts)}; {samples}"
