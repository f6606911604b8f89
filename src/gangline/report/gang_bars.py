"""Rows with a bar each: groups of servers in a ring, workers of a parameter server, owners of matrix updates."""

from typing import NamedTuple

from markupsafe import Markup

from gangline.report import svg
from gangline.report.palette import paint, stroke
from gangline.report.text import clean, percent
from gangline.spec.measurements import GroupEdges, LateUpdates, MatrixUpdates
from gangline.spec.parameter_server import WorkersSummary
from gangline.spec.record import Record
from gangline.units import format_bytes, format_seconds, format_step

MOST_GROUPS = 16


class GroupRow(NamedTuple):
    """One group."""

    name: str
    cells: list[str]
    """Edges to each group, in the order of the rows, with the measured speed; empty for none."""
    leaving: int
    """Edges to other groups: flows on the uplinks of each of its leaves while a ring reduces."""
    bar: Markup


def group_rows(record: Record) -> list[GroupRow]:
    """Nothing of a gang whose groups are not known, or that has one, or more than are drawn."""
    order = record.gang.order if record.gang else None
    edges = {(edge.source, edge.target): edge.edges for edge in order.edges} if order else {}
    shown = {(edge.source, edge.target): _cell(edge) for edge in order.edges} if order else {}
    names = sorted({name for pair in edges for name in pair})
    if not 1 < len(names) <= MOST_GROUPS:
        return []
    leaving = {name: sum(count for (one, other), count in edges.items() if name == one != other) for name in names}
    most = max(leaving.values())
    return [
        GroupRow(
            name.removeprefix("/"), [shown.get((name, other), "") for other in names], leaving[name],
            svg.share_bar(leaving[name] / most, f"{name.removeprefix('/')}: {leaving[name]} leaving"),
        )
        for name in names
    ]  # fmt: skip


def _cell(each: GroupEdges) -> str:
    """Edges by the order of ranks, and how fast a connection between these groups was when it was measured."""
    if each.bytes_per_second is None:
        return str(each.edges)
    return f"{each.edges} · {format_bytes(each.bytes_per_second)}/s"


class WorkerRow(NamedTuple):
    """One worker."""

    name: str
    blocks: int
    bar: Markup
    block_time: str
    """Mean time of a block."""
    sent: str
    received: str
    silent: str
    """Time without the store; empty: there was none."""


def worker_rows(found: WorkersSummary | None) -> list[WorkerRow]:
    """Workers by number; nothing of a run without any, and of one whose pushes were not read."""
    workers = found.workers if found is not None else ()
    most = max((worker.blocks for worker in workers), default=0)
    return [
        WorkerRow(
            str(worker.worker), worker.blocks,
            svg.share_bar(worker.blocks / most, f"worker {worker.worker}: {worker.blocks} blocks"),
            format_seconds(worker.seconds / worker.blocks), format_bytes(worker.sent_bytes),
            format_bytes(worker.received_bytes), format_seconds(worker.silent_seconds) if worker.silent_seconds else "",
        )
        for worker in workers
    ]  # fmt: skip


def merges_words(found: WorkersSummary) -> str:
    """`130 merges, age of pushes 0.6 on average · 2 blocks dropped, 0 refused`."""
    return (
        f"{found.merges} merges, age of pushes {found.age_mean:.1f} on average \u00b7 {found.dropped} blocks dropped,"
        f" {found.refused} refused"
    )


def workers_words(found: WorkersSummary | None) -> str:
    """All of it in a line; empty: the run has no workers."""
    if found is None:
        return ""
    blocks = ", ".join(f"{worker.worker}: {worker.blocks}" for worker in found.workers) or "not known"
    parts = [f"blocks by worker {blocks}", merges_words(found)]
    if found.workers:
        sent, received = (
            sum(worker.sent_bytes for worker in found.workers),
            sum(worker.received_bytes for worker in found.workers),
        )
        parts.append(f"{format_bytes(sent)} sent, {format_bytes(received)} received")
    if silent := sum(worker.silent_seconds for worker in found.workers):
        parts.append(f"{format_seconds(silent)} without the store")
    return " \u00b7 ".join(parts)


MOST_ROWS = 32
COLORS = ("blue", "orange", "green", "pink", "sky", "yellow", "red")
OTHER = "grey"


class OwnerRow(NamedTuple):
    """One rank."""

    rank: int
    bar: Markup
    planned: str
    computed: str
    measured: str


class KindColor(NamedTuple):
    """One kind of matrix in the bars."""

    name: str
    swatch: Markup


class OwnerPicture(NamedTuple):
    """What the page shows of matrix updates."""

    sentence: str
    kinds: list[KindColor]
    rows: list[OwnerRow]


def owner_picture(record: Record) -> OwnerPicture | None:
    """None: the training had no matrix rule."""
    updates = record.training.matrix_updates if record.training else None
    if updates is None or not updates.ranks:
        return None
    kinds = _kinds(updates)
    most = max(updates.bound_seconds, *(sum(rank.loads.values()) for rank in updates.ranks)) or 1.0
    return OwnerPicture(
        updates_words(updates),
        [KindColor(clean(name, 60), svg.svg(svg.rect((0, 0, 12, 12), paint(color), name), 12, 12, "swatch", name))
         for name, color in {**kinds, **({"other": OTHER} if len(kinds) == len(COLORS) else {})}.items()],
        [
            OwnerRow(
                rank.rank, _bar(rank.loads, kinds, updates.bound_seconds, most),
                format_step(sum(rank.loads.values())), f"{rank.computed:,}",
                "unknown" if rank.seconds is None else format_step(rank.seconds / max(1, updates.steps)),
            )
            for rank in updates.ranks[:MOST_ROWS]
        ],
    )  # fmt: skip


def updates_words(updates: MatrixUpdates) -> str:
    """`muon/standard: 24 matrices in 40 steps, 960 updates, each computed once; slowest rank 1.00 of the mean, ...`."""
    if updates.computed == updates.wanted:
        each = "once" if updates.repeats == 1 else f"by all {updates.repeats:,} copies"
        count = f"{updates.computed:,} updates, each computed {each}"
    else:
        count = f"{updates.computed:,} updates computed where {updates.wanted:,} were wanted"
    loads = [sum(rank.loads.values()) for rank in updates.ranks]
    mean = sum(loads) / len(loads) if loads else 0.0
    most = f"most loaded rank {max(loads) / mean:.2f} of the mean" if mean else ""
    balance = f"; {most}, bound {updates.bound_seconds / mean:.2f}" if mean else ""
    said = f"{clean(updates.rule)}: {updates.matrices:,} matrices in {updates.steps:,} steps, {count}{balance}"
    return f"{said}{_late_words(updates.late)}"


def _late_words(late: LateUpdates | None) -> str:
    if late is None:
        return ""
    whose = "one a block, as the plan chose" if late.are_blocks else "as the line gives them"
    return (
        f"; they reached copies during the next forward pass in {late.buckets:,} buckets ({whose}), up to "
        f"{format_bytes(late.outstanding_bytes)} in memory until then"
    )


def _kinds(updates: MatrixUpdates) -> dict[str, str]:
    """Colour of the kinds with the most load."""
    loads: dict[str, float] = {}
    for rank in updates.ranks:
        for kind, load in rank.loads.items():
            loads[kind] = loads.get(kind, 0.0) + load
    largest = sorted(loads, key=lambda kind: (-loads[kind], kind))
    return dict(zip(sorted(largest[: len(COLORS)]), COLORS, strict=False))


def _bar(loads: dict[str, float], kinds: dict[str, str], bound: float, most: float) -> Markup:
    left, parts = 0.0, []
    for kind, load in sorted(loads.items()):
        width = 100 * load / most
        title = f"{kind}: {format_step(load)}, {percent(load / most)} of the longest"
        parts.append(svg.rect((left, 1, width, 10), paint(kinds.get(kind, OTHER)), title))
        left += width
    edge = min(100 * bound / most, 99.7)
    parts.append(svg.polyline([(edge, 0.0), (edge, 12.0)], stroke("ink", 1.5)))
    return svg.svg("".join(parts), 100, 12, "stage", f"updates of one step; bound {format_step(bound)}")
