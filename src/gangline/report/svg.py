"""Drawings of a report as SVG text: pure, byte-stable, each mark with a `<title>`. Words are next to them, in HTML,
so that a drawing may stretch to any width without squeezing letters."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from markupsafe import Markup, escape

from gangline.report.palette import CAUSES, STATES, paint, stroke
from gangline.report.text import broken_words, percent
from gangline.spec.measurements import BrokenSteps, CurvePoint
from gangline.units import format_number, format_seconds

WIDTH, HEIGHT = 640.0, 200.0
_NARROWEST = 4.0
"""Bar of one step."""


@dataclass(frozen=True, slots=True)
class Chart:
    """A drawing and the words along its axes, evenly spaced: top to bottom, left to right."""

    svg: Markup
    y_labels: list[str]
    x_labels: list[str]


def curve_on_band(
    points: Sequence[CurvePoint], label: str, seeds: Iterable[Sequence[float]] = (), broken: Sequence[BrokenSteps] = ()
) -> Chart | None:
    """Values over steps, on the base band where the points have one; thin lines for other seeds.

    Steps whose value is not finite are upright bars with dashed edges.
    """
    drawn = [p for p in points if math.isfinite(p.value)]
    if len(drawn) < 2:
        return None
    first = min([drawn[0].step, *(each.first for each in broken)])
    last = max([drawn[-1].step, *(each.last for each in broken)])
    placed = (_placed(line, points) for line in seeds)
    lines = [[(step, v) for step, v in line if first <= step <= last and math.isfinite(v)] for line in placed]
    frame = replace(Frame.around(drawn, [v for line in lines for _, v in line]), first=first, last=max(last, first + 1))
    parts = [grid(frame), band(drawn, frame)]
    parts += [_line(line, frame, stroke("grey", 1)) for line in lines if len(line) > 1]
    parts += [_line([(p.step, p.value) for p in drawn], frame, stroke("blue", 2.5))]
    parts += [_hover(drawn, frame, label), *(_bar(each, frame, label) for each in broken)]
    name = f"{label} from {format_number(drawn[0].value)} to {format_number(drawn[-1].value)}"
    name += f", not finite at {broken_words(broken)}" if broken else ""
    drawing = svg("".join(parts), WIDTH, HEIGHT, "chart", name)
    return Chart(drawing, frame.labels, [f"{step:,}" for step in (first, (first + last) // 2, last)])


def sparkline(values: Sequence[float], label: str) -> Markup:
    """A small line, 120 by 24."""
    finite = [v for v in values if math.isfinite(v)]
    if len(finite) < 2:
        return Markup("")
    low, high = min(finite), max(finite)
    span = (high - low) or 1.0
    places = [(i * 120 / (len(finite) - 1), 22 - (v - low) / span * 20) for i, v in enumerate(finite)]
    body = f"<title>{escape(label)}</title>{polyline(places, stroke('blue', 1.5))}"
    return svg(body, 120, 24, "spark", label)


def ledger_bar(rows: Sequence[tuple[str, float, float]]) -> Markup:
    """One bar of the whole allocation, cause by cause."""
    parts, left = [], 0.0
    for cause, seconds, share in rows:
        width = share * WIDTH
        title = f"{cause}: {format_seconds(seconds)}, {percent(share)}"
        parts.append(rect((left, 0, max(width - 1, 0.5), 28), paint(CAUSES.get(cause, "faint")), title))
        left += width
    return svg("".join(parts), WIDTH, 28, "ledger", "where the allocated time went")


def stage_bar(start: float, seconds: float, whole: float, state: str, title: str) -> Markup:
    """One stage on the time of the run, all in seconds."""
    scale = 100 / (whole or 1.0)
    left = min(start * scale, 99.4)
    body = rect((left, 1, max(min(seconds * scale, 100 - left), 0.6), 10), paint(STATES.get(state, "grey")), title)
    return svg(body, 100, 12, "stage", title)


def share_bar(share: float, title: str) -> Markup:
    """A share of the whole width; a number that is none draws nothing."""
    body = rect((0, 1, 100 * min(max(share, 0.0), 1.0) if math.isfinite(share) else 0.0, 10), paint("blue"), title)
    return svg(body, 100, 12, "stage", title)


def heat_cell(share: float, title: str, *, outlier: bool) -> Markup:
    """One cell of the strip: stronger is a larger share of the rank's time; an outlier also carries a mark."""
    depth = 0.06 + 0.94 * min(max(share, 0.0), 1.0) ** 0.7
    body = rect((0, 0, 100, 14), f'{paint("blue")} fill-opacity="{depth:.2f}"', title)
    if outlier:
        body += rect((0, 0, 6, 14), paint("orange"), title)
    return svg(body, 100, 14, "heat", title)


@dataclass(frozen=True, slots=True)
class Frame:
    """Maps steps and values to the drawing."""

    first: float
    last: float
    low: float
    high: float
    labels: list[str]

    @staticmethod
    def around(points: Sequence[CurvePoint], others: Sequence[float]) -> "Frame":
        """A frame that holds `points` with their bands and the values `others`."""
        values = [p.value for p in points] + list(others)
        values += [edge for p in points for edge in (p.low, p.high) if edge is not None and math.isfinite(edge)]
        low, high, ticks = _nice(min(values), max(values))
        labels = [format_number(round(high - (high - low) * i / (ticks - 1), 10)) for i in range(ticks)]
        return Frame(points[0].step, max(points[-1].step, points[0].step + 1), low, high, labels)

    def place(self, step: float, value: float) -> tuple[float, float]:
        """Coordinates in the drawing; values outside are moved to its edge."""
        x = (step - self.first) / (self.last - self.first) * WIDTH
        y = HEIGHT - (value - self.low) / (self.high - self.low) * HEIGHT
        return x, min(max(y, 0.0), HEIGHT)


def _nice(low: float, high: float) -> tuple[float, float, int]:
    """Round ends around low..high and the number of ticks between them."""
    span = max(high - low, abs(high) * 1e-6, 1e-9)
    power = 10.0 ** math.floor(math.log10(span / 4))
    step = next(power * m for m in (1, 2, 2.5, 5, 10) if power * m >= span / 4)
    bottom, top = math.floor(low / step), math.ceil(high / step)
    top = top if top > bottom else bottom + 1
    return bottom * step, top * step, top - bottom + 1


def grid(frame: Frame) -> str:
    """A line for each label of the value axis."""
    lines = len(frame.labels)
    places = (HEIGHT * i / (lines - 1) for i in range(lines))
    return "".join(f'<path d="M0 {y:.1f}H{WIDTH:g}" {stroke("faint", 1)}/>' for y in places)


def band(points: Sequence[CurvePoint], frame: Frame) -> str:
    """The area between `low` and `high` of the points that have them."""
    inside = [(p.step, p.low, p.high) for p in points if p.low is not None and p.high is not None]
    if len(inside) < 2:
        return ""
    above = [frame.place(step, high) for step, _, high in inside]
    below = [frame.place(step, low) for step, low, _ in reversed(inside)]
    corners = " ".join(f"{x:.1f},{y:.1f}" for x, y in above + below)
    return f'<polygon points="{corners}" {paint("sky")} fill-opacity="0.35"><title>band of the base</title></polygon>'


def _placed(values: Sequence[float], points: Sequence[CurvePoint]) -> list[tuple[float, float]]:
    """Values at the steps of the points; where they are not as many, evenly over all of them."""
    if len(values) == len(points):
        return [(point.step, value) for point, value in zip(points, values, strict=True)]
    first, last = points[0].step, points[-1].step
    span = (last - first) / max(len(values) - 1, 1)
    return [(first + i * span, value) for i, value in enumerate(values)]


def _line(pairs: Sequence[tuple[float, float]], frame: Frame, attributes: str) -> str:
    return polyline([frame.place(step, value) for step, value in pairs], attributes)


def polyline(places: Sequence[tuple[float, float]], attributes: str) -> str:
    """A line through places of the drawing."""
    return f'<polyline points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in places)}" {attributes}/>'


def _hover(points: Sequence[CurvePoint], frame: Frame, label: str) -> str:
    """An invisible column over each point that says its value."""
    width = WIDTH / len(points)
    marks = []
    for point in points:
        x, _ = frame.place(point.step, point.value)
        said = f"step {point.step:,}: {label} {format_number(point.value)}"
        if point.low is not None and point.high is not None:
            said += f", base {format_number(point.low)} to {format_number(point.high)}"
        marks.append(rect((x - width / 2, 0, width, HEIGHT), 'fill="#000" fill-opacity="0"', said))
    return "".join(marks)


def _bar(steps: BrokenSteps, frame: Frame, label: str) -> str:
    """Bar over the whole height, wide enough to be seen, within the frame."""
    (left, _), (right, _) = (frame.place(step, frame.low) for step in (steps.first, steps.last))
    left = min(left, WIDTH - _NARROWEST)
    width = max(right - left, _NARROWEST)
    title = f"{label} not finite at {broken_words([steps])}"
    body = rect((left, 0, width, HEIGHT), f'{paint("red")} fill-opacity="0.3"', title)
    edges = f"M{left:.2f} 0V{HEIGHT:g}M{left + width:.2f} 0V{HEIGHT:g}"
    return f'{body}<path d="{edges}" {stroke("red", 1.5)} stroke-dasharray="5 3"/>'


def rect(box: tuple[float, float, float, float], attributes: str, title: str) -> str:
    """A box (x, y, width, height) that says `title`; a number that is none draws nothing."""
    x, y, width, height = (number if math.isfinite(number) else 0.0 for number in box)
    at = f'x="{x:.2f}" y="{y:g}" width="{width:.2f}" height="{height:g}"'
    return f"<rect {at} {attributes}><title>{escape(title)}</title></rect>"


def svg(body: str, width: float, height: float, kind: str, label: str) -> Markup:
    """A drawing that fills its place."""
    return Markup(  # noqa: S704  # every text inside went through escape() above
        f'<svg class="{kind}" role="img" aria-label="{escape(label)}" viewBox="0 0 {width:g} {height:g}" '
        f'width="{width:g}" height="{height:g}" preserveAspectRatio="none">{body}</svg>'
    )
