"""Chart of the headline metric over the runs of a list, oldest to the left; each point links to its run.

Keyboards and screen readers reach the same pages by the rows below, with fewer stops.
"""

import math
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from markupsafe import Markup

from gangline.report.palette import paint, stroke
from gangline.report.svg import polyline, rect, svg
from gangline.report.text import clean
from gangline.serve.database.types import RunRow
from gangline.serve.pages.layout import address
from gangline.units import format_number

WIDTH, HEIGHT = 640.0, 56.0
FEWEST = 3
_COLORS = {"better": "green", "same": "grey", "worse": "red", "unknown": "grey"}


class MetricHistory(NamedTuple):
    """The drawing, and what it shows."""

    svg: Markup
    project: str
    metric: str
    low: str
    high: str
    runs: int


def draw_history(rows: Sequence[RunRow]) -> MetricHistory | None:
    """History of the one project and metric that most rows have; None where fewer than three runs have it."""
    valued = [row for row in rows if row.metric and row.value is not None and math.isfinite(row.value)]
    kinds = Counter((row.project, row.metric) for row in valued)
    if not kinds or kinds.most_common(1)[0][1] < FEWEST:
        return None
    (project, metric), count = kinds.most_common(1)[0]
    shown = [row for row in reversed(valued) if (row.project, row.metric) == (project, metric)]
    values = [row.value or 0.0 for row in shown]
    low, high = min(values), max(values)
    span = (high - low) or abs(high) or 1.0
    places = [((i + 0.5) * WIDTH / count, HEIGHT - 6 - (v - low) / span * (HEIGHT - 12)) for i, v in enumerate(values)]
    commits = [place for row, place in zip(shown, places, strict=True) if not row.marks]
    body = polyline(commits, stroke("faint", 1.5)) + "".join(
        _mark(row, place, WIDTH / count) for row, place in zip(shown, places, strict=True)
    )
    label = f"{clean(metric, 60)} of the last {count} runs"
    drawing = svg(body, WIDTH, HEIGHT, "history", label)
    return MetricHistory(drawing, project, str(metric), format_number(low), format_number(high), count)


def _mark(row: RunRow, place: tuple[float, float], width: float) -> str:
    """A dash at the value in the colour of its side, under a column that says it and leads to the run.

    Pale, and off the line, if the run has a flag such as `experiment`.
    """
    x, y = place
    said = clean(
        f"{clean(row.subject, 80) or row.run}: {row.metric} {format_number(row.value or 0.0)}, {row.verdict}", 240
    ) + (f" ({row.marks})" if row.marks else "")
    dash = rect(
        (x - min(width * 0.3, 9), y - 2, min(width * 0.6, 18), 4),
        paint("faint" if row.marks else _COLORS[row.side]),
        said,
    )
    column = rect((x - width / 2, 0, width, HEIGHT), 'fill="#000" fill-opacity="0"', said)
    return f'<a href="{address("runs", row.run)}" tabindex="-1">{dash}{column}</a>'
