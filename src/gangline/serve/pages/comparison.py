"""Comparison of two to ten runs: curves, metrics judged on a band, costs, and the rows in which they differ."""

import json
from collections.abc import Sequence
from itertools import chain
from typing import Any, NamedTuple

from markupsafe import Markup

from gangline.errors import UsageError
from gangline.report import facts
from gangline.report.comparison.changes import are_listed, content_words, unpinned_between
from gangline.report.comparison.compare import compare
from gangline.report.comparison.text import unchanged_words, unpinned_lines
from gangline.report.inputs import imported_versions
from gangline.report.text import change_words, percent, quantity, short
from gangline.sanitize import sanitized
from gangline.serve.database.types import Principal
from gangline.serve.pages.curve_overlay import Style, departure, overlay, style_of
from gangline.serve.pages.layout import address, draw
from gangline.spec.measurements import Band, Metric
from gangline.spec.record import Record
from gangline.spec.replica_shares import shares_words
from gangline.spec.run_flags import flags_of

_SHOWN_ROWS = 120
"""Most rows of one kind."""


class TableCell(NamedTuple):
    """What one run has in a row of the comparison."""

    value: str
    note: str = ""
    mark: str = ""
    kind: str = ""
    """Class of the cell: side of the band, `best`, `same`."""


class TableRow(NamedTuple):
    """One property, with a cell for each run that is compared."""

    name: str
    cells: list[TableCell]
    note: str = ""


def differences(ordered: Sequence[Record]) -> list[tuple[str, list[TableRow]]]:
    """Rows by kind in which not all are alike."""
    tables = [_inputs_of(record) for record in ordered]
    kinds = []
    for kind in tables[0]:
        names = sorted({name for table in tables for name in table[kind]})
        rows = [_difference(name, [table[kind].get(name) for table in tables]) for name in names]
        table_rows = [row for row in rows if any(cell.kind != "same" for cell in row.cells[1:])]
        if table_rows:
            kinds.append((kind, table_rows[:_SHOWN_ROWS]))
    return kinds


def _inputs_of(record: Record) -> dict[str, dict[str, str]]:
    inputs, plan = record.inputs, record.plan
    digests = {"code": inputs.code, "environment": inputs.environment, "image": inputs.image, "data": inputs.data}
    shape = {"name": plan.name, "ranks": plan.world_size, "precision": plan.precision, "device": plan.device,
             "micro batch": plan.micro_batch,
             "samples by replica": shares_words(plan.shares) or "equal"} if plan else {}  # fmt: skip
    ran = record.ran
    reads = (*ran.reads, *ran.listed) if ran is not None and are_listed(ran) else ()
    return {
        "line.toml": {name: _said(value) for name, value in inputs.values.items()},
        "package": imported_versions(record) or dict(inputs.versions),
        "digest": {name: short(digest, 12) for name, digest in digests.items() if digest},
        "plan": {name: str(value) for name, value in shape.items()},
        "undeclared read": {read.path: content_words(read) for read in reads},
        "run": {"target": record.run.target, "seeds": ", ".join(map(str, inputs.seeds))},
    }


def _said(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _difference(name: str, values: Sequence[str | None]) -> TableRow:
    said = ["-" if value is None else value for value in values]
    return TableRow(
        name, [TableCell(value, kind="same" if place and value == said[0] else "") for place, value in enumerate(said)]
    )


FEWEST, MOST = 2, 10
COSTS = (
    ("step", "step_seconds", "s"), ("memory a rank", "memory_bytes", "B"), ("training", "wall_seconds", "s"),
    ("GPU-hours", "gpu_hours", ""), ("money", "money", ""),
)  # fmt: skip


def render_compare(records: Sequence[Record], *, principal: Principal, reference: str | None = None) -> str:
    """The page at `/compare`.

    Args:
        records: Two to ten.
        principal: Who looks.
        reference: Run that the others are held against; None: the oldest that learned a band of its own, else the
            oldest. The others follow from old to new.

    Raises:
        UsageError: Fewer or more.
    """
    if not FEWEST <= len(records) <= MOST:
        raise UsageError(
            f"a comparison takes {FEWEST} to {MOST} runs, {len(records)} were named; tick some in the list"
        )
    ordered = _ordered([sanitized(record) for record in records], reference)
    columns = [_column(ordered, place) for place in range(len(ordered))]
    found = (unpinned_between(ordered[0], record) for record in ordered[1:])
    unpinned = list(dict.fromkeys(chain.from_iterable(found)))
    return draw(
        "compare.html.j2",
        columns=columns,
        charts=[chart for chart in (overlay(ordered), departure(ordered)) if chart],
        metrics=_metrics(ordered, columns),
        banded=any(_band_of(metric) for metric in ordered[0].metrics.values()),
        costs=_costs(ordered),
        differences=differences(ordered),
        unchanged=unchanged_words(unpinned),
        unpinned=unpinned_lines(unpinned),
        principal=principal,
    )


def _ordered(records: Sequence[Record], reference: str | None) -> list[Record]:
    """The reference first, the others by age."""
    aged = sorted(records, key=lambda record: (record.run.created, record.run.id))
    banded = (r for r in aged if any(metric.band for metric in r.metrics.values()))
    first = next((r for r in aged if r.run.id == reference), None) or next(banded, aged[0])
    return [first, *(record for record in aged if record is not first)]


class Column(NamedTuple):
    """A run, compared with the first."""

    record: Record
    style: Style
    url: Markup
    word: str
    verdict: str
    """Verdict with the gates that could not judge."""
    marked: str
    outcome: str
    why: str
    first_url: Markup
    """The same page with this one as the first."""
    without_url: Markup | None
    """The same page without this one, where enough are left."""


def _column(ordered: Sequence[Record], place: int) -> Column:
    record = ordered[place]
    judged = compare(ordered[0], record) if place else None
    ids = [each.run.id for each in ordered]
    rest = [run for run in ids if run != record.run.id]
    return Column(
        record=record,
        style=style_of(place),
        url=address("runs", record.run.id),
        word=facts.verdict_word(record),
        verdict=facts.verdict_text(record),
        marked=" · ".join(flags_of(record)),
        outcome=judged.outcome if judged else "",
        why=judged.why if judged else "",
        first_url=address("compare", run=ids, reference=record.run.id),
        without_url=address("compare", run=rest, reference=ids[0] if place else None) if len(rest) >= FEWEST else None,
    )


def _metrics(ordered: Sequence[Record], columns: Sequence[Column]) -> list[TableRow]:
    """Values of all; judged are those that can be compared with the first."""
    names = sorted({name for record in ordered for name in record.metrics})
    judged = [column.outcome != "NOT COMPARABLE" for column in columns]
    return [_metric_row(name, [record.metrics.get(name) for record in ordered], judged) for name in names]


def _metric_row(name: str, metrics: Sequence[Metric | None], judged: Sequence[bool]) -> TableRow:
    first = metrics[0]
    band = _band_of(first)
    better = next((metric.better for metric in metrics if metric and metric.better), None)
    best = best_places([metric if may else None for metric, may in zip(metrics, judged, strict=True)], band, better)
    cells = []
    for place, metric in enumerate(metrics):
        if metric is None:
            cells.append(TableCell("-"))
            continue
        side = facts.side_of(metric.value, band, better) if place and judged[place] else "unknown"
        change = metric.value / first.value - 1 if place and first and first.value else None
        mark = "★ best" if place in best else f"{facts.SIDE_MARKS[side]} {side}" if side != "unknown" else ""
        words = change_words(change) if change is not None else ""
        cells.append(
            TableCell(quantity(metric.value, metric.unit), words, mark, f"s-{side}" + " best" * (place in best))
        )
    return TableRow(name, cells, _band_words(band, better))


def _band_of(metric: Metric | None) -> Band | None:
    """Its own, else that of its base."""
    return (metric.band or metric.base_band) if metric else None


def _band_words(band: Band | None, better: str | None) -> str:
    if band is None:
        return ""
    spread = f"± {percent(band.half / abs(band.center))}" if band.center else ""
    return f"band {spread}, {better} is better" if better else f"band {spread}"


def best_places(metrics: Sequence[Metric | None], band: Band | None, better: str | None) -> set[int]:
    """Places within half a band of the best value; none where that is all of them: noise has no winner."""
    known = {place: metric.value for place, metric in enumerate(metrics) if metric is not None}
    if band is None or better is None or len(known) < 2:
        return set()
    top = min(known.values()) if better == "lower" else max(known.values())
    near = {place for place, value in known.items() if abs(value - top) <= band.half}
    return near if len(near) < len(known) else set()


def _costs(ordered: Sequence[Record]) -> list[TableRow]:
    """Measured costs; without marks, because no band of costs is learned."""
    rows = []
    for name, key, unit in COSTS:
        values = [getattr(record.plan.measured, key) if record.plan else None for record in ordered]
        if any(value is not None for value in values):
            cells = zip(values, map(facts.trained_by, ordered), strict=True)
            rows.append(
                TableRow(name, [_cost(value, values[0], unit, place, of) for place, (value, of) in enumerate(cells)])
            )
    return rows


def _cost(value: float | None, first: float | None, unit: str, place: int, of: str) -> TableCell:
    """Cell with the change since the first run, or the run that it was measured in."""
    if value is None:
        return TableCell("-")
    change = change_words(value / first - 1) if place and first else ""
    return TableCell(quantity(value, unit), f"of {of}" if of else change)
