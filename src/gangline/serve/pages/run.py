"""The page of one run: verdict and gates first, then what it waits for or does now, then the rest of its record."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from markupsafe import Markup

from gangline.report import facts
from gangline.report.progress import LARGEST_DRAWN, StageProgress
from gangline.report.run.html import RankShare, rank_shares, template_values
from gangline.sanitize import sanitized
from gangline.serve.database.types import Principal
from gangline.serve.pages.layout import POLL_SECONDS, address, draw, outside_links, run_address
from gangline.spec.measurements import RankRow
from gangline.spec.program_files import OUTPUT_KIND
from gangline.spec.record import Record
from gangline.units import format_seconds

HEAT_LEVELS = 10
SHOWN_EVENTS = 200
TRACE_POINTS = 256


def render_run(
    record: Record,
    *,
    base: Record | None,
    principal: Principal,
    live: bool,
    now: float,
    csrf: str = "",
    progress: StageProgress | None = None,
) -> str:
    """The page at `/runs/<id>`.

    Args:
        record: As the store has it.
        base: Record of its base run, where that can be read: then the page says what changed.
        principal: Who looks; forms are shown to those who may send them.
        live: Events are served for it: the page follows them until the run has ended.
        now: Seconds since the epoch, for ages.
        csrf: Goes into each form.
        progress: What the watch of its gang knows of the running stage.
    """
    record = sanitized(record)
    run = record.run
    is_open = run.state == "open"
    seen = template_values(record, base)
    return draw(
        "run.html.j2",
        **seen | {"events": record.events[-SHOWN_EVENTS:]},
        graph=_graph(record),
        ranks=_heat(record),
        here=address("runs", run.id),
        api=address("api", "v1", "runs", run.id),
        follow=address("api", "v1", "runs", run.id, "events") if live and is_open else None,
        poll=POLL_SECONDS,
        same_commit=address("runs", commit=record.commit.sha),
        same_project=address("runs", project=run.project),
        base_url=run_address(record.commit.base.run) if record.commit.base else None,
        compare_url=address("compare", run=[record.commit.base.run, run.id]) if record.commit.base else None,
        links=_links(record),
        downloads=_downloads(record),
        output_links=_output_links(record),
        names={artifact.key: _name(artifact.key, record.prefix) for artifact in record.artifacts},
        **_now(record, progress),
        waiting=record.gang.waiting if is_open and record.gang else None,
        may_cancel=is_open and not run.cancel_requested and principal.may("runner", run.project),
        awaits_approval=is_open and record.commit.trust == "fork" and run.approved is None,
        may_approve=principal.may("maintainer", run.project),
        is_open=is_open,
        principal=principal,
        csrf=csrf,
        now=now,
    )


def _now(record: Record, progress: StageProgress | None) -> dict[str, Any]:
    """What the running stage is and how far it has come."""
    running = next((name for name, info in facts.stages_in_order(record) if info.state == "running"), None)
    seen = progress if progress and progress.stage == running else None
    losses = thinned([loss for loss in seen.losses if abs(loss) < LARGEST_DRAWN], TRACE_POINTS) if seen else []
    steps = seen.steps if seen else None
    return {
        "running": running,
        "since": record.stages[running].started if running else None,
        "progress": seen,
        "steps": steps or (record.plan.steps if record.plan else None),
        "losses": Markup(",").join(f"{loss:.5g}" for loss in losses),
        "trace": trace(losses),
    }


def thinned(values: Sequence[float], most: int) -> list[float]:
    """Evenly chosen, the newest among them."""
    stride = -(-len(values) // most) or 1
    return list(values[::-1][::stride][::-1])


def trace(losses: Sequence[float]) -> Markup:
    """Points of a line in a box of 640 by 64; live.js continues it in the same way."""
    if len(losses) < 2:
        return Markup("")
    low, span = min(losses), (max(losses) - min(losses)) or 1.0
    places = ((i * 640 / (len(losses) - 1), 60 - (loss - low) / span * 56) for i, loss in enumerate(losses))
    return Markup(" ").join(f"{x:.1f},{y:.1f}" for x, y in places)


class Node(NamedTuple):
    """A stage in the graph."""

    name: str
    state: str
    mark: str
    took: str
    url: Markup | None
    """Page of the run that it was taken from."""
    title: str


def _graph(record: Record) -> list[Node]:
    nodes = []
    for name, info in facts.stages_in_order(record):
        took = format_seconds(info.seconds) if info.seconds is not None and info.state != "taken" else ""
        url = run_address(info.taken_from) if info.taken_from else None
        nodes.append(Node(name, info.state, facts.STAGE_MARKS[info.state], took, url, info.message or info.state))
    return nodes


class HeatCell(NamedTuple):
    """One cell of the heat map of rank times."""

    level: int
    """0 to 10: how dark."""
    percent: int
    share: RankShare


def _heat(record: Record) -> list[tuple[RankRow, list[HeatCell], str]]:
    """Table of shares, small enough for a page: a cell is a class and a number."""
    return [(row, [_heat_cell(share) for share in shares], step) for row, shares, step in rank_shares(record.ranks)]


def _heat_cell(each: RankShare) -> HeatCell:
    share = min(max(each.share, 0.0), 1.0) if math.isfinite(each.share) else 0.0
    return HeatCell(round(HEAT_LEVELS * share**0.7), round(100 * share), each)


def _links(record: Record) -> list[tuple[str, Markup]]:
    """The same commit and run elsewhere; who drives it, too."""
    links = dict(record.links)
    if record.run.driver.url:
        links.setdefault(record.run.driver.kind, record.run.driver.url)
    return outside_links(links)


def _downloads(record: Record) -> dict[str, Markup]:
    """Address of each artifact that is shown, by key; its digest distinguishes those of one kind."""
    path = ("api", "v1", "runs", record.run.id, "artifacts")
    return {artifact.key: address(*path, artifact.kind, sha256=artifact.sha256) for artifact in record.artifacts}


def _output_links(record: Record) -> dict[str, Markup]:
    """Address of each output that is shown, by its digest."""
    path = ("api", "v1", "runs", record.run.id, "artifacts", OUTPUT_KIND)
    return {
        file.sha256: address(*path, sha256=file.sha256) for file in (record.outputs.files if record.outputs else ())
    }


def _name(key: str, prefix: str) -> str:
    """Path in the run's folder; for a blob its kind of name and the head of its digest."""
    head, _, last = key.rpartition("/")
    return f"{head.split('/')[0]} {last[:12]}" if key.startswith("blobs/") else key.removeprefix(prefix + "/")
