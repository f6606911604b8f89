"""Curves of several runs in one chart, on the band of the reference run.

Lines differ in colour and dash, and each carries its letter at its end: no line is known by its colour alone.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from markupsafe import Markup

from gangline.line.results.band import learn_curve_bands
from gangline.report.palette import paint, stroke
from gangline.report.progress import LARGEST_DRAWN
from gangline.report.svg import HEIGHT, WIDTH, Frame, band, grid, polyline, rect, svg
from gangline.spec.measurements import CurvePoint
from gangline.spec.record import Record
from gangline.units import format_number

LETTERS = "ABCDEFGHIJ"
COLORS = ("blue", "red", "green", "pink", "ink")
"""Each is seen on light and on dark ground."""
DASHES = ("", "9 5", "2 4")
LABELS_HEIGHT, LABELS_WIDTH, LABEL_GAP = 280.0, 30.0, 15.0
FLOOR_PERCENT = 0.1


class Style(NamedTuple):
    """Style of a run's curve, in the chart and next to its name."""

    letter: str
    color: str
    dash: str

    @property
    def attributes(self) -> str:
        """SVG attributes of the curve's stroke."""
        dashed = f' stroke-dasharray="{self.dash}"' if self.dash else ""
        return stroke(self.color, 3 if self.letter == "A" else 2) + dashed

    @property
    def sample(self) -> Markup:
        """A piece of its line, for tables."""
        line = polyline([(1, 6), (31, 6)], self.attributes)
        return svg(line, 32, 12, "sample", f"line of {self.letter}")


def style_of(place: int) -> Style:
    """Style of the run in this place; the others are compared with the first."""
    return Style(LETTERS[place], COLORS[place % len(COLORS)], DASHES[place // len(COLORS) % len(DASHES)])


Line = tuple[int, Sequence[CurvePoint]]
"""Place of a run, and its points."""


class Overlay(NamedTuple):
    """The drawing, the letters at the ends of its lines, the words along its axes."""

    title: str
    svg: Markup
    ends: Markup
    y_labels: list[str]
    x_labels: list[str]
    band: str
    """Whose band is drawn; empty: there is none."""
    drawn: int


def overlay(records: Sequence[Record]) -> Overlay | None:
    """Curves of the runs that have one of the first's metric; None where none has."""
    lines = _lines(records)
    if not lines:
        return None
    banded, whose = band_points(records[0])
    return _draw(lines, banded, whose, title=records[0].curve.metric.capitalize())


def departure(records: Sequence[Record]) -> Overlay | None:
    """How far each curve lies from the first's, in percent of it: what the fall of a loss hides is seen here."""
    lines = _lines(records)
    if len(lines) < 2 or lines[0][0] != 0 or any(point.value == 0 for point in lines[0][1]):
        return None
    first = lines[0][1]
    apart = [(place, [_apart(p, p.value, first) for p in points]) for place, points in lines]
    banded, whose = band_points(records[0])
    relative = [
        replace(_apart(p, p.value, first), low=_apart(p, p.low, first).value, high=_apart(p, p.high, first).value)
        for p in banded
        if p.low is not None and p.high is not None
    ]
    return _draw(apart, relative, whose, title=f"{records[0].curve.metric.capitalize()}, percent above or below A")


def _lines(records: Sequence[Record]) -> list[Line]:
    metric = records[0].curve.metric
    curves = [(place, _drawn(r.curve.points)) for place, r in enumerate(records) if r.curve.metric == metric]
    return [(place, points) for place, points in curves if len(points) > 1]


def _drawn(points: Sequence[CurvePoint]) -> list[CurvePoint]:
    """Values without those that diverged, next to which all others would look alike."""
    return [p for p in points if abs(p.value) < LARGEST_DRAWN]


def _apart(point: CurvePoint, value: float, first: Sequence[CurvePoint]) -> CurvePoint:
    """`value` at the step of `point`, in percent of the first's curve there."""
    usual = at_step(first, point.step)
    return CurvePoint(step=point.step, value=100 * (value / usual - 1) if usual else 0.0)


def at_step(points: Sequence[CurvePoint], step: int) -> float:
    """Value of a curve at any step: straight between its points, flat beyond its ends."""
    place = bisect_left(points, step, key=lambda point: point.step)
    if place == 0 or place == len(points):
        return points[min(place, len(points) - 1)].value
    before, after = points[place - 1], points[place]
    share = (step - before.step) / (after.step - before.step)
    return before.value + share * (after.value - before.value)


def _draw(lines: Sequence[Line], banded: Sequence[CurvePoint], whose: str, *, title: str) -> Overlay:
    every = sorted((p for _, points in lines for p in points), key=lambda p: p.step)
    frame = Frame.around(every, [edge for p in banded for edge in (p.low, p.high) if edge is not None])
    parts = [grid(frame), band(banded, frame)]
    for place, points in reversed(lines):
        parts.append(polyline([frame.place(p.step, p.value) for p in points], style_of(place).attributes))
    parts.append(_columns(lines, frame))
    drawing = svg("".join(parts), WIDTH, HEIGHT, "chart", f"{title}: {len(lines)} runs over the steps")
    first, last = every[0].step, every[-1].step
    steps = [f"{step:,}" for step in (first, (first + last) // 2, last)]
    return Overlay(title, drawing, _ends(lines, frame), frame.labels, steps, whose, len(lines))


def band_points(record: Record) -> tuple[list[CurvePoint], str]:
    """The band that the run's own seeds learned, else the one of its base that its curve carries, and whose it is."""
    seeds = {
        name: line
        for name, line in record.curve.seed_points.items()
        if max(map(abs, line), default=0.0) < LARGEST_DRAWN
    }
    learned = learn_curve_bands(seeds, floor_percent=FLOOR_PERCENT, origin=record.run.id)
    own = [
        CurvePoint(step=point.step, value=point.value, low=each.low, high=each.high)
        for point, each in zip(record.curve.points, learned, strict=False)
        if each is not None
    ]
    if own:
        return own, "A"
    edges = ((p, (p.low, p.high)) for p in record.curve.points)
    carried = [p for p, both in edges if all(edge is not None and abs(edge) < LARGEST_DRAWN for edge in both)]
    return carried, "the base of A" if carried else ""


def _columns(lines: Sequence[Line], frame: Frame) -> str:
    """Invisible columns that say the value of every run at their step."""
    steps = sorted({p.step for _, points in lines for p in points})
    thinned = steps[:: max(1, len(steps) // 64)]
    width = WIDTH / len(thinned)
    by_run = [(LETTERS[place], {p.step: p.value for p in points}) for place, points in lines]
    marks = []
    for step in thinned:
        said = ", ".join(f"{name} {format_number(values[step])}" for name, values in by_run if step in values)
        x, _ = frame.place(step, frame.low)
        marks.append(rect((x - width / 2, 0, width, HEIGHT), 'fill="#000" fill-opacity="0"', f"step {step:,}: {said}"))
    return "".join(marks)


def _ends(lines: Sequence[Line], frame: Frame) -> Markup:
    """Letters at the ends of the lines, moved apart if they would cover each other."""
    wanted = sorted((frame.place(p[-1].step, p[-1].value)[1] * LABELS_HEIGHT / HEIGHT, place) for place, p in lines)
    heights = spread([y for y, _ in wanted], gap=LABEL_GAP, last=LABELS_HEIGHT)
    parts = []
    for (y, place), moved in zip(wanted, heights, strict=True):
        style = style_of(place)
        parts.append(f'<path d="M0 {y:.1f}L12 {moved:.1f}" {stroke(style.color, 1)}/>')
        parts.append(f'<text x="15" y="{moved + 4:.1f}" {paint(style.color)}>{style.letter}</text>')
    return svg("".join(parts), LABELS_WIDTH, LABELS_HEIGHT, "ends", "letters of the runs")


def spread(heights: Sequence[float], *, gap: float, last: float) -> list[float]:
    """Sorted heights moved down, then up from `last`, until neighbours are at least `gap` apart."""
    down: list[float] = []
    for height in heights:
        down.append(max(height, down[-1] + gap) if down else max(height, gap / 2))
    up: list[float] = []
    for height in reversed(down):
        up.append(min(height, up[-1] - gap) if up else min(height, last - gap / 2))
    return up[::-1]
