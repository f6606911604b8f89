"""Owners of matrix updates: a bar per rank, by kind of matrix, with the lower bound of all plans. Pure."""

from typing import NamedTuple

from markupsafe import Markup

from gangline.report import svg
from gangline.report.palette import paint, stroke
from gangline.report.text import clean, percent, step_time
from gangline.spec.measurements import LateUpdates, MatrixUpdates
from gangline.spec.record import Record
from gangline.units import format_bytes

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
    most = max(updates.bound_seconds, *(sum(each.loads.values()) for each in updates.ranks)) or 1.0
    return OwnerPicture(
        updates_words(updates),
        [KindColor(clean(name, 60), svg.svg(svg.rect((0, 0, 12, 12), paint(color), name), 12, 12, "swatch", name))
         for name, color in {**kinds, **({"other": OTHER} if len(kinds) == len(COLORS) else {})}.items()],
        [
            OwnerRow(
                each.rank, _bar(each.loads, kinds, updates.bound_seconds, most),
                step_time(sum(each.loads.values())), f"{each.computed:,}",
                "unknown" if each.seconds is None else step_time(each.seconds / max(1, updates.steps)),
            )
            for each in updates.ranks[:MOST_ROWS]
        ],
    )  # fmt: skip


def updates_words(updates: MatrixUpdates) -> str:
    """`muon/standard: 24 matrices in 40 steps, 960 updates, each computed once; slowest rank 1.00 of the mean, ...`."""
    if updates.computed == updates.wanted:
        each = "once" if updates.repeats == 1 else f"by all {updates.repeats:,} copies"
        count = f"{updates.computed:,} updates, each computed {each}"
    else:
        count = f"{updates.computed:,} updates computed where {updates.wanted:,} were wanted"
    loads = [sum(each.loads.values()) for each in updates.ranks]
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
    for each in updates.ranks:
        for kind, load in each.loads.items():
            loads[kind] = loads.get(kind, 0.0) + load
    largest = sorted(loads, key=lambda kind: (-loads[kind], kind))
    return dict(zip(sorted(largest[: len(COLORS)]), COLORS, strict=False))


def _bar(loads: dict[str, float], kinds: dict[str, str], bound: float, most: float) -> Markup:
    left, parts = 0.0, []
    for kind, load in sorted(loads.items()):
        width = 100 * load / most
        title = f"{kind}: {step_time(load)}, {percent(load / most)} of the longest"
        parts.append(svg.rect((left, 1, width, 10), paint(kinds.get(kind, OTHER)), title))
        left += width
    edge = min(100 * bound / most, 99.7)
    parts.append(svg.polyline([(edge, 0.0), (edge, 12.0)], stroke("ink", 1.5)))
    return svg.svg("".join(parts), 100, 12, "stage", f"updates of one step; bound {step_time(bound)}")
