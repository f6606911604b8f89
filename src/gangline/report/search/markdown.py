"""Result of a search as markdown: five rows and the change of `line.toml`, for a pull request or a summary."""

from difflib import unified_diff

from gangline.report.search.text import (
    best_trials,
    headline,
    importance_words,
    note_of,
    setting_words,
    spent_words,
    verdict_of,
    why,
)
from gangline.report.text import ZERO_WIDTH_SPACE, code, markdown, visible
from gangline.sanitize import sanitized
from gangline.spec.search import SearchView
from gangline.units import format_number

ROWS = 5
MOST_LINES = 60


def render_markdown_search(view: SearchView, *, line: tuple[str, str] | None = None) -> str:
    """Verdict, five rows, what it cost; untrusted text is escaped.

    Args:
        view: The search.
        line: Text of `line.toml` before and with the winner's keys; none: no change is proposed.
    """
    view = sanitized(view)
    keys, trials = list(view.request.space), best_trials(view, ROWS)
    heads = ["trial", *view.request.metrics, *keys, "note"]
    table = [f"| {' | '.join(markdown(each, 80) for each in heads)} |", "|--:|" + "--:|" * (len(heads) - 2) + "--|"]
    for each in trials:
        values = map(format_number, each.values)
        settings = [setting_words(each.settings[key]) if key in each.settings else "unknown" for key in keys]
        cells = [str(each.number), *values, *settings, note_of(view, each)]
        table.append(f"| {' | '.join(markdown(cell, 120) for cell in cells)} |")
    blocks = [
        f"**{verdict_of(view)}** {markdown(headline(view))}",
        markdown(why(view)),
        "\n".join(table) if trials else "",
        _change(*line) if line else "",
        markdown(f"{spent_words(view)} · matters most: {importance_words(view)}"),
        f"{code(f'gangline search report {view.request.id} --open')} shows all trials",
    ]
    return "\n\n".join(each for each in blocks if each) + "\n"


def _change(before: str, after: str) -> str:
    """The change as a block that its own text cannot end."""
    lines = list(unified_diff(before.splitlines(), after.splitlines(), "line.toml", "line.toml", n=1, lineterm=""))
    shown = [visible(each, 200).replace("```", f"`{ZERO_WIDTH_SPACE}``") for each in lines[:MOST_LINES]]
    return "\n".join(["```diff", *shown, "```"])
