"""The report as one HTML file: no script, no outside reference; the same record gives the same bytes.

Everything is drawn from the record (and that of its base, where there is one). It reads in order without its style
sheet, too: some build servers block it.
"""

from functools import cache
from statistics import median
from typing import NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup

from gangline.report import facts, palette, svg
from gangline.report.compare import compare
from gangline.report.text import clean, percent, place, quantity, short, step_time
from gangline.spec.record import RankRow, Record
from gangline.units import format_bytes, format_count, format_number, format_seconds

PHASES = ("data", "forward", "backward", "wait", "optimizer", "checkpoint", "other")
SHOWN_EVENTS = 60
SHOWN_ARTIFACTS = 80


def render_html(record: Record, base: Record | None = None) -> str:
    """The whole page; `base` adds what changed since that run."""
    comparison = compare(base, record) if base else None
    return _template().render(
        record=record,
        light=Markup(palette.style_rules(palette.LIGHT)),  # noqa: S704  # our own constants
        dark=Markup(palette.style_rules(palette.DARK)),  # noqa: S704  # our own constants
        word=facts.verdict_word(record),
        reason=facts.verdict_reason(record),
        tiles=_tiles(record),
        gates=facts.gate_order(record.gates),
        stages=_stage_rows(record),
        chart=svg.curve_on_band(record.curve.points, record.curve.metric, record.curve.seed_points.values()),
        outside=facts.first_outside(record),
        metrics=[facts.judge(name, record.metrics[name]) for name in sorted(record.metrics)],
        heat=_heat_rows(record.ranks),
        slowest=facts.slowest_rank(record),
        ledger=facts.ledger_rows(record.ledger) if record.ledger else [],
        off=facts.forecast_off(record),
        comparison=comparison,
        commands=facts.reproduce_commands(record),
        events=record.events[-SHOWN_EVENTS:],
        artifacts=record.artifacts[:SHOWN_ARTIFACTS],
    )


@cache
def _template() -> Template:
    environment = Environment(
        loader=PackageLoader("gangline.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: value if isinstance(value, Markup) else clean(value),
    )
    environment.filters |= {
        "bytes": format_bytes, "count": format_count, "number": format_number, "seconds": format_seconds,
        "percent": percent, "short": short, "step": step_time,
        "quantity": quantity, "place": place,
    }  # fmt: skip
    environment.globals |= {
        "marks": facts.MARKS, "side_marks": facts.SIDE_MARKS, "stage_marks": facts.STAGE_MARKS, "phases": PHASES,
        "ledger_bar": svg.ledger_bar, "causes": palette.CAUSES,
    }  # fmt: skip
    return environment.get_template("report.html.j2")


class Tile(NamedTuple):
    """One number at the head of the page."""

    label: str
    value: str
    note: str
    spark: Markup = Markup("")


def _tiles(record: Record) -> list[Tile]:
    tiles = []
    if judged := facts.headline(record):
        band = judged.metric.base_band or judged.metric.band
        whose = "base" if judged.metric.base_band else "band"
        spread = f" ± {percent(band.half / abs(band.center))}" if band and band.center else ""
        note = f"{whose} {format_number(band.center)}{spread}" if band else "no band"
        spark = svg.sparkline([point.value for point in record.curve.points], f"{record.curve.metric} over the steps")
        tiles.append(Tile(judged.name, quantity(judged.metric.value, judged.metric.unit), note, spark))
    if record.plan:
        ranks = f"{record.plan.world_size} {record.plan.device.upper()} ranks · {record.plan.precision}"
        tiles.append(Tile("plan", record.plan.name, ranks))
        if record.plan.measured.step_seconds:
            off = facts.forecast_off(record)
            note = f"{percent(off, signed=True)} against forecast" if off is not None else "median, measured"
            tiles.append(Tile("step", step_time(record.plan.measured.step_seconds), note))
    if record.ledger:
        note = f"effective time {percent(record.ledger.effective_time)}"
        tiles.append(Tile("useful share", percent(record.ledger.useful_share), note))
    tiles.append(Tile("time", format_seconds(facts.total_seconds(record)), "all stages of this run"))
    return tiles


class StageRow(NamedTuple):
    name: str
    state: str
    mark: str
    seconds: str
    message: str
    taken_from: str
    bar: Markup


def _stage_rows(record: Record) -> list[StageRow]:
    """Stages in order, each with its bar on the time of the run."""
    rows, at = [], 0.0
    whole = facts.total_seconds(record)
    for name, info in facts.stages_in_order(record):
        spent = 0.0 if info.state == "taken" else info.seconds or 0.0
        said = format_seconds(info.seconds) if info.seconds is not None else "-"
        bar = svg.stage_bar(at, spent, whole, info.state, f"{name}: {info.state}, {said}") if spent else Markup("")
        mark = facts.STAGE_MARKS[info.state]
        rows.append(StageRow(name, info.state, mark, said, info.message, info.taken_from or "", bar))
        at += spent
    return rows


class HeatRow(NamedTuple):
    row: RankRow
    cells: list[Markup]
    step: str


def _heat_rows(ranks: tuple[RankRow, ...]) -> list[HeatRow]:
    """A row per rank; a cell far above the median of its phase is marked."""
    usual = {phase: median(row.phases.get(phase, 0.0) for row in ranks) for phase in PHASES} if ranks else {}
    rows = []
    for row in ranks[:64]:
        whole = sum(row.phases.values()) or 1.0
        cells = []
        for phase in PHASES:
            seconds = row.phases.get(phase, 0.0)
            share = seconds / whole
            far = share > 0.02 and seconds > 1.2 * usual[phase]
            title = f"rank {row.rank} on {place(row.node)}: {phase} {format_seconds(seconds)}, {percent(share)}"
            cells.append(svg.heat_cell(share, title, outlier=far))
        rows.append(HeatRow(row, cells, step_time(row.step_seconds) if row.step_seconds else "-"))
    return rows
