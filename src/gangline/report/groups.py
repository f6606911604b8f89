"""The ring over a gang's nodes by group of servers: edges between groups, and flows that leave each group. Pure."""

from typing import NamedTuple

from markupsafe import Markup

from gangline.report import svg
from gangline.report.palette import paint
from gangline.spec.measurements import GroupEdges
from gangline.spec.record import Record
from gangline.units import format_bytes

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
    edges = {(each.source, each.target): each.edges for each in order.edges} if order else {}
    shown = {(each.source, each.target): _cell(each) for each in order.edges} if order else {}
    names = sorted({name for pair in edges for name in pair})
    if not 1 < len(names) <= MOST_GROUPS:
        return []
    leaving = {name: sum(count for (one, other), count in edges.items() if name == one != other) for name in names}
    most = max(leaving.values())
    return [
        GroupRow(
            name.removeprefix("/"), [shown.get((name, other), "") for other in names], leaving[name],
            _bar(leaving[name], most, name),
        )
        for name in names
    ]  # fmt: skip


def _cell(each: GroupEdges) -> str:
    """Edges by the order of ranks, and how fast a connection between these groups was when it was measured."""
    if each.bytes_per_second is None:
        return str(each.edges)
    return f"{each.edges} · {format_bytes(each.bytes_per_second)}/s"


def _bar(flows: int, most: int, name: str) -> Markup:
    title = f"{name.removeprefix('/')}: {flows} leaving"
    return svg.svg(svg.rect((0, 1, 100 * flows / most, 10), paint("blue"), title), 100, 12, "stage", title)
