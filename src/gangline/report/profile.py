"""Profile of steps (lanes of each rank, memory, longest operators) as one HTML file, and in a terminal."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from markupsafe import Markup, escape

from gangline.report.pages import render_page
from gangline.report.palette import paint, stroke
from gangline.report.svg import rect, svg
from gangline.report.text import clean, percent, place
from gangline.sanitize import sanitized
from gangline.spec.gang.profiling import CATEGORIES, ProfiledStep, ProfileSummary
from gangline.units import format_bytes, format_seconds

COLORS = {
    "matmul": "green", "elementwise": "blue", "optimizer": "pink", "communication": "orange", "copy": "yellow",
    "other": "grey", "idle": "faint",
}  # fmt: skip
PHASE_COLORS = {
    "data": "orange", "forward": "blue", "backward": "green", "wait": "sky", "optimizer": "pink", "bubble": "yellow",
}  # fmt: skip
WIDTH, LANE, MEMORY = 960.0, 16.0, 90.0
SHOWN_RANKS = 16
THINNEST = 0.3
"""Width below which nothing is drawn, in units of the drawing."""


class RankPart(NamedTuple):
    """Everything of one rank on the page."""

    summary: ProfileSummary
    tiles: list[tuple[str, str]]
    lanes: list[tuple[str, str, Markup]]
    """Category, its share, its drawing."""
    ruler: Markup
    memory: Markup
    peaks: list[tuple[str, str, str]]
    """Phase, the most that was allocated in it, its colour."""
    trace: str | None


def render_profile_page(
    run: str, name: str, summaries: Sequence[ProfileSummary], traces: Mapping[int, str] | None = None
) -> str:
    """The whole page.

    Args:
        run: Run id.
        name: Of the window, `10-12`.
        summaries: By rank.
        traces: Where the trace of a rank lies, as a person may open it: a path next to the page, or a key of the store.
    """
    summaries, links = sanitized(tuple(summaries)), traces or {}
    return render_page(
        "profile.html.j2",
        run=run,
        name=name.replace("-", " to "),
        device="GPU" if summaries and summaries[0].device == "cuda" else "CPU",
        parts=[_part(summary, links.get(summary.rank)) for summary in summaries[:SHOWN_RANKS]],
        left_out=max(0, len(summaries) - SHOWN_RANKS),
        keys=[(category, COLORS[category]) for category in CATEGORIES],
        duration=duration,
    )


def _part(each: ProfileSummary, trace: str | None) -> RankPart:
    steps = len(each.steps) or 1
    tiles = [
        ("step", duration(each.seconds / steps)), ("busy", percent(each.busy_share)),
        ("communication, exposed · hidden", f"{percent(each.exposed_share)} · {percent(each.hidden_share)}"),
        ("idle", percent(each.idle_share)), ("peak memory", format_bytes(each.peak_bytes)),
    ]  # fmt: skip
    lanes = [
        (category, percent(each.categories.get(category, 0.0) / (each.seconds or 1.0)), _lane(category, each))
        for category in CATEGORIES
        if category in each.lanes
    ]
    largest = sorted(each.peak_by_phase.items(), key=lambda item: (-item[1], item[0]))
    peaks = [(name, format_bytes(size), PHASE_COLORS.get(name, "faint")) for name, size in largest]
    return RankPart(each, tiles, lanes, _ruler(each.steps, each.seconds), _memory(each), peaks, trace)


def _lane(category: str, each: ProfileSummary) -> Markup:
    """Pieces in a row that are alike are one mark."""
    bins = each.lanes[category]
    width = WIDTH / len(bins)
    parts, begin = [], 0
    for end in range(1, len(bins) + 1):
        if end < len(bins) and _depth(bins[end]) == _depth(bins[begin]):
            continue
        if _depth(bins[begin]):
            where = duration(begin / len(bins) * each.seconds)
            title = f"rank {each.rank} {category}: {percent(bins[begin])} of the time, from {where}"
            attributes = f'{paint(COLORS[category])} fill-opacity="{_depth(bins[begin]) / 10:.1f}"'
            parts.append(_mark(begin * width, (end - begin) * width, LANE, attributes, title))
        begin = end
    return svg("".join(parts), WIDTH, LANE, "lane", f"{category} of rank {each.rank}")


def _depth(share: float) -> int:
    """Ten shades."""
    return min(10, round(share * 10 + 0.3)) if share > 0 else 0


def _ruler(steps: Sequence[ProfiledStep], seconds: float) -> Markup:
    scale = WIDTH / (seconds or 1.0)
    parts = []
    for number, step in enumerate(steps):
        title = f"step {step.step}: {duration(step.seconds)}"
        color = f'{paint("faint")} fill-opacity="{0.9 if number % 2 else 0.4}"'
        parts.append(_mark(step.start * scale, step.seconds * scale, 8, color, title))
    return svg("".join(parts), WIDTH, 8, "ruler", "steps")


def _memory(each: ProfileSummary) -> Markup:
    if len(each.memory) < 2 or not each.peak_bytes:
        return Markup("")
    scale = WIDTH / (each.seconds or 1.0)
    places = [
        (min(max(when * scale, 0.0), WIDTH), MEMORY - size / each.peak_bytes * (MEMORY - 4))
        for when, size in each.memory
    ]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    area = f"{places[0][0]:.1f},{MEMORY:g} {line} {places[-1][0]:.1f},{MEMORY:g}"
    title = f"memory of rank {each.rank}, at most {format_bytes(each.peak_bytes)}"
    body = _phases(each, scale) + (
        f'<polygon points="{area}" {paint("sky")} fill-opacity="0.35"><title>{escape(title)}</title></polygon>'
        f'<polyline points="{line}" {stroke("blue", 1.5)}/>'
    )
    return svg(body, WIDTH, MEMORY, "memory", title)


def _phases(each: ProfileSummary, scale: float) -> str:
    """Background of the memory curve: which phase of the step it was."""
    ends = [*(when for when, _ in each.phases[1:]), each.seconds]
    parts = []
    for (begin, name), end in zip(each.phases, ends, strict=False):
        if name in PHASE_COLORS and (end - begin) * scale >= THINNEST:
            title = f"{name}, {duration(end - begin)}"
            attributes = f'{paint(PHASE_COLORS[name])} fill-opacity="0.22"'
            parts.append(_mark(begin * scale, (end - begin) * scale, MEMORY, attributes, title))
    return "".join(parts)


def _mark(x: float, width: float, height: float, attributes: str, title: str) -> str:
    return rect((x, 0, max(width, 0.4), height), attributes, title)


SHOWN_OPERATORS = 12
_BLOCKS = " ░▒▓█"


def render_profile(name: str, summaries: Sequence[ProfileSummary], *, width: int = 100) -> str:
    """A row a rank, a lane of the busiest category each, then operators of the rank that was idle most."""
    summaries = sanitized(tuple(summaries))
    if not summaries:
        return f"steps {name}: no rank has responded"
    head = f"steps {name.replace('-', ' to ')} · {len(summaries)} rank{'s' if len(summaries) > 1 else ''}"
    device = "GPU" if summaries[0].device == "cuda" else "CPU"
    blocks = [[f"{head} · time of the {device}"], _ranks(summaries), _lanes(summaries, width)]
    worst = max(summaries, key=lambda summary: (summary.idle_share + summary.exposed_share, summary.rank))
    blocks.append(_operators(worst, width))
    return "\n\n".join("\n".join(line.rstrip() for line in block) for block in blocks if block)


def duration(seconds: float) -> str:
    """`12 ms`, `340 µs`: a step is short."""
    if seconds < 1e-3:
        return f"{seconds * 1e6:.0f} µs"
    return f"{seconds * 1e3:.1f} ms" if seconds < 1 else format_seconds(seconds)


def _ranks(summaries: Sequence[ProfileSummary]) -> list[str]:
    rows = [("rank", "step", "busy", "exposed", "idle", "peak", "where")]
    for summary in summaries:
        steps = len(summary.steps) or 1
        rows.append(
            (
                str(summary.rank), duration(summary.seconds / steps), percent(summary.busy_share),
                percent(summary.exposed_share), percent(summary.idle_share),
                format_bytes(summary.peak_bytes), place(summary.node),
            )
        )  # fmt: skip
    widths = [max(len(row[i]) for row in rows) for i in range(6)]
    return ["  ".join([*(f"{cell:>{w}}" for cell, w in zip(row, widths, strict=False)), row[6]]) for row in rows]


def _lanes(summaries: Sequence[ProfileSummary], width: int) -> list[str]:
    """Each category of each rank over the window; a darker mark is a larger share of that piece."""
    marks = max(20, min(80, width - 26))
    lines = []
    for summary in summaries[:8]:
        for category in CATEGORIES:
            if lane := summary.lanes.get(category):
                spent = summary.categories.get(category, 0.0)
                share = percent(spent / summary.seconds) if summary.seconds else "-"
                lines.append(f"{summary.rank:>3} {category:<13} {_shade(lane, marks)} {share:>6}")
    return lines


def _shade(lane: Sequence[float], marks: int) -> str:
    edges = [len(lane) * i // marks for i in range(marks + 1)]
    means = (sum(lane[a:b]) / (b - a) if b > a else 0.0 for a, b in pairwise(edges))
    return "".join(_BLOCKS[min(len(_BLOCKS) - 1, round(mean * (len(_BLOCKS) - 1) + 0.3))] for mean in means)


def _operators(summary: ProfileSummary, width: int) -> list[str]:
    rows = [("self", "of window", "calls", "category", "operator")]
    for operator in summary.top[:SHOWN_OPERATORS]:
        share = percent(operator.self_seconds / summary.seconds) if summary.seconds else "-"
        rows.append((duration(operator.self_seconds), share, str(operator.count), operator.category, operator.name))
    widths = [max(len(row[i]) for row in rows) for i in range(4)]
    room = max(10, width - sum(widths) - 10)
    lines = [f"rank {summary.rank}, longest by their own time"]
    for own, share, calls, category, name in rows:
        numbers = f"{own:>{widths[0]}}  {share:>{widths[1]}}  {calls:>{widths[2]}}"
        lines.append(f"{numbers}  {category:<{widths[3]}}  {clean(name, room)}")
    return lines
