"""Result of a bisection as one HTML file (values over the history, evidence, changes of it), and as markdown."""

import math
from typing import NamedTuple

from markupsafe import Markup, escape

from gangline.report.bisection import text
from gangline.report.bisection.text import MARKS, Culprit, headline, mean_words, measure_words, spent_words
from gangline.report.pages import render_page
from gangline.report.palette import paint, stroke
from gangline.report.svg import HEIGHT, WIDTH, svg
from gangline.report.text import clean, code, markdown, percent, short, visible
from gangline.sanitize import sanitized
from gangline.spec.bisect import BisectCommit, BisectState
from gangline.units import format_number

PATCH_LINES = 400
_COLORS = {"good": "green", "bad": "red", "skipped": "grey", "unknown": "faint"}
_TONES = {"good": "better", "bad": "worse"}
_WORDS = {
    "found": "found",
    "between": "between",
    "same": "no difference",
    "budget": "budget spent",
    "unfit": "no search",
}


class HistoryRow(NamedTuple):
    """One commit in the table of a bisection."""

    sha: str
    subject: str
    mark: str
    tone: str
    mean: str
    values: list[tuple[str, str]]
    doubt: str
    origin: str
    reason: str
    runs: tuple[str, ...]


def render_html_bisection(state: BisectState, culprit: Culprit | None = None) -> str:
    """The whole page; equal states give equal bytes."""
    state = sanitized(state)
    commits = [suspect for suspect in state.suspects if suspect.values or suspect.reason]
    return render_page(
        "bisect.html.j2",
        state=state,
        head=headline(state),
        word=_WORDS.get(state.ending or "", "open"),
        tone="failed" if state.ending == "found" else "open",
        measure=measure_words(state),
        spent=spent_words(state),
        rows=[_row(commit) for commit in commits],
        drawing=draw_history(state),
        culprit=culprit,
        patch=_patch_lines(culprit.patch) if culprit else [],
    )


def _row(each: BisectCommit) -> HistoryRow:
    seeds = sorted(each.values, key=int)
    values = [(seed, format_number(value)) for seed, value in zip(seeds, each.numbers, strict=True)]
    return HistoryRow(
        sha=each.sha,
        subject=each.subject,
        mark=MARKS[each.side],
        tone=_TONES.get(each.side, "unknown"),
        mean=mean_words(each),
        values=values,
        doubt="-" if each.doubt is None else percent(each.doubt),
        origin=each.origin,
        reason=each.reason,
        runs=each.runs[:4],
    )


def draw_history(state: BisectState) -> Markup:
    """A column a commit, a dot a value, in the colour of its side; what is not known is a short grey line."""
    finite = [v for suspect in state.suspects for v in suspect.numbers if math.isfinite(v)]
    low, high = (min(finite), max(finite)) if finite else (0.0, 1.0)
    margin = (high - low) * 0.1 or 1.0
    low, high = low - margin, high + margin
    column = WIDTH / len(state.suspects)
    parts = [
        _column(suspect, (number + 0.5) * column, column, (low, high)) for number, suspect in enumerate(state.suspects)
    ]
    label = f"{state.metric} of each commit, oldest first"
    return svg("".join(parts), WIDTH, HEIGHT, "dots", label)


def _column(each: BisectCommit, middle: float, width: float, scale: tuple[float, float]) -> str:
    color = _COLORS[each.side]
    title = f"<title>{escape(clean(f'{short(each.sha)} {each.side} {mean_words(each)} {each.subject}', 160))}</title>"
    left, wide = middle - width * 0.4, width * 0.8
    ground = f'<rect x="{left:.1f}" y="0" width="{wide:.1f}" height="{HEIGHT:g}" {paint(color)} fill-opacity="0.12">'
    dots = "".join(_dash(value, left, wide, scale, color) for value in each.numbers)
    return f"{ground}{title}</rect>{dots}"


def _dash(value: float, left: float, wide: float, scale: tuple[float, float], color: str) -> str:
    """A short line at the value; one that is infinite lies at the top."""
    low, high = scale
    share = (value - low) / (high - low) if math.isfinite(value) else 1.0
    y = HEIGHT - min(max(share, 0.0), 0.99) * HEIGHT
    return f'<path d="M{left:.1f} {y:.1f}h{wide:.1f}" {stroke(color, 2.5)}/>'


def _patch_lines(patch: str) -> list[tuple[str, Markup]]:
    """(kind, line with its indentation): cut after so many lines."""
    lines = patch.splitlines()
    shown = [(_kind(line), escape(visible(line, 400))) for line in lines[:PATCH_LINES]]
    rest = len(lines) - PATCH_LINES
    return shown + ([("at", escape(f"... {rest} more lines: git show prints all"))] if rest > 0 else [])


def _kind(line: str) -> str:
    if line.startswith("@@"):
        return "at"
    return {"+": "plus", "-": "minus"}.get(line[:1], "same")


_MARKDOWN_WORDS = {
    "found": "first bad commit",
    "between": "not narrowed further",
    "same": "no difference",
    "unfit": "no search",
}
_FILES = 30


def render_markdown_bisection(state: BisectState, culprit: text.Culprit | None = None) -> str:
    """Sentence, evidence, files; untrusted text is escaped."""
    state = sanitized(state)
    word = _MARKDOWN_WORDS.get(state.ending or "", "open")
    rows = [
        f"**{word}** {markdown(text.headline(state))}",
        markdown(text.measure_words(state)),
        f"`{text.history_strip(state, 80)}`",
    ]
    table = ["|  | commit | subject | values | mean | from |", "|--|--|--|--|--:|--|"]
    for suspect in state.suspects:
        if suspect.values or suspect.reason:
            values = " ".join(format_number(value) for value in suspect.numbers)
            cells = (suspect.reason or suspect.subject, values, text.mean_words(suspect), suspect.origin)
            words = " | ".join(markdown(cell, 160) for cell in cells)
            table.append(f"| {text.MARKS[suspect.side]} | {code(short(suspect.sha))} | {words} |")
    rows.append("\n".join(table))
    rows += [f"⚠ {markdown(note)}" for note in state.notes]
    if culprit and culprit.files:
        counted = (
            f"- {markdown(file.path, 200)}" + ("" if file.added is None else f" +{file.added} -{file.removed}")
            for file in culprit.files[:_FILES]
        )
        rows.append("\n".join(counted))
    rows.append(markdown(text.spent_words(state)))
    return "\n\n".join(rows) + "\n"
