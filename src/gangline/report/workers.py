"""Workers of a parameter server: their blocks, bytes and silences, and what became of their pushes. Pure."""

from typing import NamedTuple

from markupsafe import Markup

from gangline.report import svg
from gangline.report.palette import paint
from gangline.spec.parameter_server import WorkersSummary
from gangline.units import format_bytes, format_seconds


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
    most = max((each.blocks for each in workers), default=0)
    return [
        WorkerRow(
            str(each.worker), each.blocks, _bar(each.blocks, most, f"worker {each.worker}: {each.blocks} blocks"),
            format_seconds(each.seconds / each.blocks), format_bytes(each.sent_bytes),
            format_bytes(each.received_bytes), format_seconds(each.silent_seconds) if each.silent_seconds else "",
        )
        for each in workers
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
    blocks = ", ".join(f"{each.worker}: {each.blocks}" for each in found.workers) or "not known"
    parts = [f"blocks by worker {blocks}", merges_words(found)]
    if found.workers:
        sent, received = (
            sum(each.sent_bytes for each in found.workers),
            sum(each.received_bytes for each in found.workers),
        )
        parts.append(f"{format_bytes(sent)} sent, {format_bytes(received)} received")
    if silent := sum(each.silent_seconds for each in found.workers):
        parts.append(f"{format_seconds(silent)} without the store")
    return " \u00b7 ".join(parts)


def _bar(blocks: int, most: int, title: str) -> Markup:
    return svg.svg(svg.rect((0, 1, 100 * blocks / most, 10), paint("blue"), title), 100, 12, "stage", title)
