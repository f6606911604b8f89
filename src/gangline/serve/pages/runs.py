"""The list of runs: the queue, a chart of the metric, one row per run, two to ten of them to compare.

The chart has the oldest run on the left, and each of its points links to its run; keyboards and screen readers reach
the same pages by the rows below, with fewer stops.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from markupsafe import Markup

from gangline.report import facts
from gangline.report.palette import paint, stroke
from gangline.report.svg import polyline, rect, svg
from gangline.report.text import change_words, clean
from gangline.sanitize import sanitized
from gangline.serve.context.quarantine import RefusedRecord
from gangline.serve.database.types import Order, Principal, RunFilter, RunRow
from gangline.serve.pages.layout import POLL_SECONDS, address, draw, seconds_of, time_until
from gangline.spec.search import SearchRequest
from gangline.units import format_number, format_seconds

VERDICTS = ("open", "passed", "refused", "failed", "cancelled", "superseded")
SHOWN_ORDERS = 50
SHOWN_REFUSED = 5
_RANKS = ("quarantined", "done", "parked", "driving", "queued")
_PLACES = {"done": "not built"}

WIDTH, HEIGHT = 640.0, 56.0
FEWEST = 3
_COLORS = {"better": "green", "same": "grey", "worse": "red", "unknown": "grey"}


def render_runs(
    rows: Sequence[RunRow],
    *,
    wanted: RunFilter,
    orders: Sequence[Order],
    next_page: str | None,
    principal: Principal,
    now: float,
    counts: Mapping[tuple[str, str], int] | None = None,
    notice: str = "",
    refused: Sequence[RefusedRecord] = (),
    searches: Sequence[SearchRequest] = (),
) -> str:
    """The page at `/runs`.

    Args:
        rows: Newest first.
        wanted: What was asked for; the form keeps it.
        orders: Oldest first; those that are settled are left out, unless no run could be made of them.
        next_page: Cursor of the older page, put into the field `cursor`; None: these are the last.
        principal: Who looks.
        now: Seconds since the epoch, for ages.
        counts: Runs by (project, verdict), over everything that the principal may read.
        notice: Said above all else: the store is away, the list is as of then.
        refused: Records that could not be read: their runs are missing, or are shown as they were.
        searches: The newest searches of the one project that was asked for.
    """
    counts = counts or {}
    return draw(
        "runs.html.j2",
        rows=[_line(row, now) for row in rows],
        wanted=wanted,
        queue=_queue(orders, now),
        chips=_chips(counts, wanted),
        projects=sorted({project for project, _ in counts} | {row.project for row in rows}),
        history=draw_history(rows),
        older=_page(wanted, cursor=next_page) if next_page else None,
        newest=_page(wanted) if wanted.before else None,
        filtered=bool(_fields(wanted)),
        folded=not {"branch", "commit", "pull_request"} & set(_fields(wanted)),
        verdicts=VERDICTS,
        principal=principal,
        now=now,
        notice=notice,
        refused=refused,
        searches=sanitized(tuple(searches)),
        shown_refused=SHOWN_REFUSED,
        poll=POLL_SECONDS if _moves(rows, orders) and not wanted.before else 0,
    )


def _moves(rows: Iterable[RunRow], orders: Iterable[Order]) -> bool:
    return any(row.state == "open" for row in rows) or any(o.state in ("queued", "driving") for o in orders)


def _fields(wanted: RunFilter) -> dict[str, str]:
    """The form's fields that are filled, by name."""
    given = {
        "project": wanted.project,
        "branch": wanted.branch,
        "verdict": wanted.verdict,
        "commit": wanted.commit,
        "pull_request": str(wanted.pull_request) if wanted.pull_request is not None else None,
        "text": wanted.text,
    }
    return {name: value for name, value in given.items() if value}


def _page(wanted: RunFilter, **changed: str | None) -> Markup:
    """The list's address under the same filter but for what changed."""
    return address("runs", **(_fields(wanted) | changed))


class Chip(NamedTuple):
    """A count that is a filter, too."""

    verdict: str
    runs: int
    url: Markup
    chosen: bool


def _chips(counts: Mapping[tuple[str, str], int], wanted: RunFilter) -> list[Chip]:
    """Runs by verdict, of the project that is looked at or of all; a second click takes the filter away."""
    chips = []
    for verdict in VERDICTS:
        count = sum(n for (project, v), n in counts.items() if v == verdict and wanted.project in (None, project))
        chosen = wanted.verdict == verdict
        if count or chosen:
            url = _page(wanted, verdict=None if chosen else verdict)
            chips.append(Chip(verdict, count, url, chosen))
    return chips


class RunListRow(NamedTuple):
    """A row with its words."""

    row: RunRow
    url: Markup
    value: str
    change: str
    base: str
    mark: str
    took: str
    """Its stages, or of an open run the time since it began."""
    why: str
    """Why it ended as it did; of a run that passed only where a gate could not judge."""


def _line(row: RunRow, now: float) -> RunListRow:
    change = row.value / row.base - 1 if row.value is not None and row.base else None
    begun = seconds_of(row.created) if row.state == "open" else None
    took = row.seconds if begun is None else max(now - begun, 0.0)
    return RunListRow(
        row=row,
        url=address("runs", row.run),
        value=format_number(row.value) if row.value is not None else "",
        change=change_words(change) if change is not None else "",
        base=format_number(row.base) if row.base is not None else "",
        mark=facts.SIDE_MARKS[row.side] if row.side != "unknown" else "",
        took=format_seconds(took) if took else "",
        why="" if row.verdict == "open" or row.reason == facts.ALL_GOOD else row.reason,
    )


class Queued(NamedTuple):
    """An order with its words."""

    order: Order
    place: str
    """`1st`, or what else it is."""
    what: str
    """Branch, pull request or ref."""
    why: str
    url: Markup | None


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


def _queue(orders: Sequence[Order], now: float) -> list[Queued]:
    """What is not settled: what needs a person first, then in the order of their turn."""
    alive = [order for order in orders if order.state in _RANKS]
    alive = [order for order in alive if order.state != "done" or order.run is None]
    turns = {order.id: place for place, order in enumerate((o for o in alive if o.state == "queued"), start=1)}
    alive.sort(key=lambda order: (_RANKS.index(order.state), order.created, order.id))
    return [
        Queued(
            order,
            f"{_ordinal(turns[order.id])} in line" if order.id in turns else _PLACES.get(order.state, order.state),
            order.branch or order.ref,
            _why(order, now),
            address("runs", order.run) if order.run else None,
        )
        for order in alive[:SHOWN_ORDERS]
    ]


def _why(order: Order, now: float) -> str:
    said = [order.note] if order.note else []
    if order.state == "parked":
        said.append(f"tried again {time_until(order.not_before - now)}")
    if order.tries > 1 or (order.tries and order.state != "driving"):
        said.append(f"{order.tries} {'try' if order.tries == 1 else 'tries'} so far")
    return " · ".join(said)


def _ordinal(place: int) -> str:
    ending = "th" if place % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(place % 10, "th")
    return f"{place}{ending}"


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
