"""Result of a bisection as markdown, for an issue or a build summary."""

from gangline.report.bisection.text import (
    MARKS,
    Culprit,
    headline,
    history_strip,
    mean_words,
    measure_words,
    spent_words,
)
from gangline.report.text import code, markdown, short
from gangline.sanitize import sanitized
from gangline.spec.bisect import BisectState
from gangline.units import format_number

_WORDS = {"found": "first bad commit", "between": "not narrowed further", "same": "no difference", "unfit": "no search"}
_FILES = 30


def render_markdown_bisection(state: BisectState, culprit: Culprit | None = None) -> str:
    """Sentence, evidence, files; untrusted text is escaped."""
    state = sanitized(state)
    word = _WORDS.get(state.ending or "", "open")
    rows = [f"**{word}** {markdown(headline(state))}", markdown(measure_words(state)), f"`{history_strip(state, 80)}`"]
    table = ["|  | commit | subject | values | mean | from |", "|--|--|--|--|--:|--|"]
    for each in state.suspects:
        if each.values or each.reason:
            values = " ".join(format_number(value) for value in each.numbers)
            cells = (each.reason or each.subject, values, mean_words(each), each.origin)
            words = " | ".join(markdown(cell, 160) for cell in cells)
            table.append(f"| {MARKS[each.side]} | {code(short(each.sha))} | {words} |")
    rows.append("\n".join(table))
    rows += [f"⚠ {markdown(note)}" for note in state.notes]
    if culprit and culprit.files:
        counted = (
            f"- {markdown(each.path, 200)}" + ("" if each.added is None else f" +{each.added} -{each.removed}")
            for each in culprit.files[:_FILES]
        )
        rows.append("\n".join(counted))
    rows.append(markdown(spent_words(state)))
    return "\n\n".join(rows) + "\n"
