"""Profile as one HTML file without script: lanes of each rank, memory, longest operators, traces."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from markupsafe import Markup, escape

from gangline.report.pages import render_page
from gangline.report.palette import paint, stroke
from gangline.report.profile_text import duration
from gangline.report.text import percent
from gangline.sanitize import sanitized
from gangline.spec.gang.profiling import CATEGORIES, ProfiledStep, ProfileSummary
from gangline.units import format_bytes

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
        parts=[_part(each, links.get(each.rank)) for each in summaries[:SHOWN_RANKS]],
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
    for place in range(1, len(bins) + 1):
        if place < len(bins) and _depth(bins[place]) == _depth(bins[begin]):
            continue
        if _depth(bins[begin]):
            where = duration(begin / len(bins) * each.seconds)
            title = f"rank {each.rank} {category}: {percent(bins[begin])} of the time, from {where}"
            attributes = f'{paint(COLORS[category])} fill-opacity="{_depth(bins[begin]) / 10:.1f}"'
            parts.append(_rect(begin * width, (place - begin) * width, LANE, attributes, title))
        begin = place
    return _svg("".join(parts), LANE, "lane", f"{category} of rank {each.rank}")


def _depth(share: float) -> int:
    """Ten shades."""
    return min(10, round(share * 10 + 0.3)) if share > 0 else 0


def _ruler(steps: Sequence[ProfiledStep], seconds: float) -> Markup:
    scale = WIDTH / (seconds or 1.0)
    parts = []
    for number, each in enumerate(steps):
        title = f"step {each.step}: {duration(each.seconds)}"
        color = f'{paint("faint")} fill-opacity="{0.9 if number % 2 else 0.4}"'
        parts.append(_rect(each.start * scale, each.seconds * scale, 8, color, title))
    return _svg("".join(parts), 8, "ruler", "steps")


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
    return _svg(body, MEMORY, "memory", title)


def _phases(each: ProfileSummary, scale: float) -> str:
    """Background of the memory curve: which phase of the step it was."""
    ends = [*(when for when, _ in each.phases[1:]), each.seconds]
    parts = []
    for (begin, name), end in zip(each.phases, ends, strict=False):
        if name in PHASE_COLORS and (end - begin) * scale >= THINNEST:
            title = f"{name}, {duration(end - begin)}"
            attributes = f'{paint(PHASE_COLORS[name])} fill-opacity="0.22"'
            parts.append(_rect(begin * scale, (end - begin) * scale, MEMORY, attributes, title))
    return "".join(parts)


def _rect(x: float, width: float, height: float, attributes: str, title: str) -> str:
    box = f'x="{x:.2f}" y="0" width="{max(width, 0.4):.2f}" height="{height:g}"'
    return f"<rect {box} {attributes}><title>{escape(title)}</title></rect>"


def _svg(body: str, height: float, kind: str, label: str) -> Markup:
    return Markup(  # noqa: S704  # every text inside went through escape() above
        f'<svg class="{kind}" role="img" aria-label="{escape(label)}" viewBox="0 0 {WIDTH:g} {height:g}"'
        f' width="{WIDTH:g}" height="{height:g}" preserveAspectRatio="none">{body}</svg>'
    )
