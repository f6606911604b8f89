"""The report as one HTML file: no script, no outside reference; the same record gives the same bytes.

Everything is drawn from the record (and that of its base, where there is one). It reads in order without its style
sheet, too: some build servers block it.
"""

from statistics import median
from typing import Any, NamedTuple

from markupsafe import Markup

from gangline.report import facts, svg
from gangline.report.comparison.compare import compare
from gangline.report.comparison.text import unchanged_words, unpinned_lines
from gangline.report.diagnoses import diagnosis_rows
from gangline.report.facts import phases_of
from gangline.report.gang_bars import group_rows, merges_words, owner_picture, worker_rows
from gangline.report.pages import render_page
from gangline.report.text import broken_words, percent, place, quantity, share_words
from gangline.report.training_facts import part_rows, training_rows
from gangline.sanitize import sanitized
from gangline.spec.measurements import RankRow
from gangline.spec.record import Record
from gangline.units import format_number, format_seconds, format_step

SHOWN_EVENTS = 60
SHOWN_ARTIFACTS = 80


def render_html(record: Record, base: Record | None = None) -> str:
    """The whole page; `base` adds what changed since that run."""
    record = sanitized(record)
    return render_page("report.html.j2", heat=_heat_rows(record.ranks), **template_values(record, base))


def template_values(record: Record, base: Record | None = None) -> dict[str, Any]:
    """Values of the templates in `parts/`, each of which shows one part of a record, also on the service's pages."""
    record = sanitized(record)
    comparison = compare(base, record) if base else None
    metrics, more_metrics = facts.shown_metrics(record)
    workers = record.training.workers if record.training else None
    return {
        "record": record,
        "word": facts.verdict_word(record),
        "verdict": facts.verdict_text(record),
        "reason": facts.verdict_reason(record),
        "marked": facts.mark_words(record),
        "unreported": facts.unreported(record),
        "tiles": _tiles(record),
        "gates": facts.gate_order(record.gates),
        "pinned": facts.pinned_rows(record),
        "stages": _stage_rows(record),
        "chart": svg.curve_on_band(
            record.curve.points, record.curve.metric, record.curve.seed_points.values(), record.curve.broken
        ),
        "broken": broken_words(record.curve.broken),
        "outside": facts.first_outside(record),
        "metrics": metrics,
        "more_metrics": more_metrics,
        "slowest": facts.slowest_rank(record),
        "held_up": facts.held_up(record),
        "diagnoses": diagnosis_rows(record.diagnoses),
        "merges": merges_words(workers) if workers else "",
        "workers": worker_rows(workers),
        "groups": group_rows(record),
        "split": facts.split_tiles(record),
        "owners": owner_picture(record),
        "ledger": facts.ledger_rows(record.ledger) if record.ledger else [],
        "training": [row for row in training_rows(record) if row[0] != "workers"],  # they have a section
        "off": facts.forecast_off(record),
        "program_decides": facts.program_decides(record),
        "trained_by": facts.trained_by(record),
        "parts": part_rows(record),
        "comparison": comparison,
        "unchanged": unchanged_words(comparison.unpinned) if comparison else "",
        "unpinned": unpinned_lines(comparison.unpinned) if comparison else [],
        "commands": facts.reproduce_commands(record),
        "events": record.events[-SHOWN_EVENTS:],
        "artifacts": record.artifacts[:SHOWN_ARTIFACTS],
    }


class Tile(NamedTuple):
    """One number at the head of the page."""

    label: str
    value: str
    note: str
    spark: Markup = Markup("")


def _tiles(record: Record) -> list[Tile]:
    tiles = []
    if judged := facts.headline(record):
        band = facts.band_of(judged.metric)
        whose = "base" if judged.metric.base_band else "band"
        spread = f" ± {percent(band.half / abs(band.center))}" if band and band.center else ""
        note = f"{whose} {format_number(band.center)}{spread}" if band else "no band"
        spark = svg.sparkline([point.value for point in record.curve.points], f"{record.curve.metric} over the steps")
        tiles.append(Tile(judged.name, quantity(judged.metric.value, judged.metric.unit), note, spark))
    if record.plan:
        ranks = f"{record.plan.world_size} {record.plan.device.upper()} ranks · {record.plan.precision}"
        mesh = facts.mesh_words(record.plan.mesh, record.plan.shares)
        processes, _, how = facts.program_decides(record).partition("; ")
        chosen = Tile("plan", record.plan.name, f"{mesh} · {ranks}" if mesh else ranks)
        tiles.append(Tile("plan", processes, how) if processes else chosen)
        if record.plan.measured.step_seconds:
            off = facts.forecast_off(record)
            whose = f"of {run}" if (run := facts.trained_by(record)) else "median, measured"
            note = f"{percent(off, signed=True)} against forecast" if off is not None else whose
            tiles.append(Tile("step", format_step(record.plan.measured.step_seconds), note))
    if record.ledger:
        note = f"effective time {share_words(record.ledger.effective_time)}"
        tiles.append(Tile("useful share", share_words(record.ledger.useful_share), note))
    tiles.append(Tile("time", format_seconds(facts.total_seconds(record)), "all stages up to the report"))
    return tiles


class StageRow(NamedTuple):
    """One stage in the table of the report."""

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


class RankShare(NamedTuple):
    """How much of a rank's time a phase took."""

    share: float
    far: bool
    """Well above the median of all ranks."""
    title: str


def rank_shares(ranks: tuple[RankRow, ...]) -> list[tuple[RankRow, list[RankShare], str]]:
    """Each rank with its phases in order, and its median step in words."""
    phases = phases_of(ranks)
    usual = {phase: median(row.phases.get(phase, 0.0) for row in ranks) for phase in phases} if ranks else {}
    rows = []
    for row in ranks[:64]:
        whole = sum(row.phases.values()) or 1.0
        shares = []
        for phase in phases:
            seconds = row.phases.get(phase, 0.0)
            share = seconds / whole
            title = f"rank {row.rank} on {place(row.node)}: {phase} {format_seconds(seconds)}, {percent(share)}"
            shares.append(RankShare(share, share > 0.02 and seconds > 1.2 * usual[phase], title))
        rows.append((row, shares, format_step(row.step_seconds) if row.step_seconds else "-"))
    return rows


class HeatRow(NamedTuple):
    """One rank in the table of times by rank."""

    row: RankRow
    cells: list[Markup]
    step: str


def _heat_rows(ranks: tuple[RankRow, ...]) -> list[HeatRow]:
    """A row per rank; a cell far above the median of its phase is marked."""
    return [
        HeatRow(row, [svg.heat_cell(share.share, share.title, outlier=share.far) for share in shares], step)
        for row, shares, step in rank_shares(ranks)
    ]
