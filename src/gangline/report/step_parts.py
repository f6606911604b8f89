"""Parts of a step as they were forecast and as they were measured, alike on every surface. Pure."""

from dataclasses import dataclass

from gangline.report.text import clean, step_time
from gangline.spec.forecast import PARTS
from gangline.spec.record import Record

SHOWN_SHARE = 0.005
"""Of a step, below which a part is not worth a word."""


@dataclass(frozen=True, slots=True)
class PartRow:
    """One part; None: not known."""

    name: str
    forecast: float | None
    measured: float | None
    origin: str
    """Where the forecast came from."""


def part_rows(record: Record) -> list[PartRow]:
    """In the order of PARTS; nothing where neither a forecast nor a measurement told parts."""
    if record.plan is None:
        return []
    before = {term.part: term for term in record.plan.forecast.terms}
    after = {term.part: term.seconds for term in record.plan.measured.terms}
    steps = (record.plan.forecast.step_seconds, record.plan.measured.step_seconds)
    least = SHOWN_SHARE * max(each or 0.0 for each in steps)
    rows = [
        PartRow(
            name=part,
            forecast=before[part].seconds if part in before else None,
            measured=after.get(part),
            origin=before[part].origin if part in before else "not forecast",
        )
        for part in PARTS
    ]
    return [row for row in rows if max(row.forecast or 0.0, row.measured or 0.0) > least]


def part_words(record: Record) -> str:
    """`compute 198 ms, measured 219 ms · communication ...`; empty: no parts are known."""
    return " · ".join(f"{row.name} {_time(row.forecast)}, measured {_time(row.measured)}" for row in part_rows(record))


def _time(seconds: float | None) -> str:
    return "unknown" if seconds is None else clean(step_time(seconds))
