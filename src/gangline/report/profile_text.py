"""Profile in a terminal: time of each rank by category, and its longest operators."""

from collections.abc import Sequence
from itertools import pairwise

from gangline.report.text import clean, percent, place
from gangline.sanitize import sanitized
from gangline.spec.gang.profiling import CATEGORIES, ProfileSummary
from gangline.units import format_bytes, format_seconds

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
    worst = max(summaries, key=lambda each: (each.idle_share + each.exposed_share, each.rank))
    blocks.append(_operators(worst, width))
    return "\n\n".join("\n".join(line.rstrip() for line in block) for block in blocks if block)


def duration(seconds: float) -> str:
    """`12 ms`, `340 µs`: a step is short."""
    if seconds < 1e-3:
        return f"{seconds * 1e6:.0f} µs"
    return f"{seconds * 1e3:.1f} ms" if seconds < 1 else format_seconds(seconds)


def _ranks(summaries: Sequence[ProfileSummary]) -> list[str]:
    rows = [("rank", "step", "busy", "exposed", "idle", "peak", "where")]
    for each in summaries:
        steps = len(each.steps) or 1
        rows.append(
            (
                str(each.rank), duration(each.seconds / steps), percent(each.busy_share), percent(each.exposed_share),
                percent(each.idle_share), format_bytes(each.peak_bytes), place(each.node),
            )
        )  # fmt: skip
    widths = [max(len(row[i]) for row in rows) for i in range(6)]
    return ["  ".join([*(f"{cell:>{w}}" for cell, w in zip(row, widths, strict=False)), row[6]]) for row in rows]


def _lanes(summaries: Sequence[ProfileSummary], width: int) -> list[str]:
    """Each category of each rank over the window; a darker mark is a larger share of that piece."""
    marks = max(20, min(80, width - 26))
    lines = []
    for each in summaries[:8]:
        for category in CATEGORIES:
            if lane := each.lanes.get(category):
                spent = each.categories.get(category, 0.0)
                share = percent(spent / each.seconds) if each.seconds else "-"
                lines.append(f"{each.rank:>3} {category:<13} {_shade(lane, marks)} {share:>6}")
    return lines


def _shade(lane: Sequence[float], marks: int) -> str:
    edges = [len(lane) * i // marks for i in range(marks + 1)]
    means = (sum(lane[a:b]) / (b - a) if b > a else 0.0 for a, b in pairwise(edges))
    return "".join(_BLOCKS[min(len(_BLOCKS) - 1, round(mean * (len(_BLOCKS) - 1) + 0.3))] for mean in means)


def _operators(summary: ProfileSummary, width: int) -> list[str]:
    rows = [("self", "of window", "calls", "category", "operator")]
    for each in summary.top[:SHOWN_OPERATORS]:
        share = percent(each.self_seconds / summary.seconds) if summary.seconds else "-"
        rows.append((duration(each.self_seconds), share, str(each.count), each.category, each.name))
    widths = [max(len(row[i]) for row in rows) for i in range(4)]
    room = max(10, width - sum(widths) - 10)
    lines = [f"rank {summary.rank}, longest by their own time"]
    for own, share, calls, category, name in rows:
        numbers = f"{own:>{widths[0]}}  {share:>{widths[1]}}  {calls:>{widths[2]}}"
        lines.append(f"{numbers}  {category:<{widths[3]}}  {clean(name, room)}")
    return lines
