"""Bisection in a terminal: its state while it runs, and its result."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean

from gangline.report.comparison.text import WIDTH, file_lines
from gangline.report.comparison.types import FileChange
from gangline.report.facts import time_of
from gangline.report.next_commands import bisection
from gangline.report.text import clean, percent, short
from gangline.sanitize import sanitized
from gangline.spec.bisect import BisectCommit, BisectState
from gangline.units import format_number, format_seconds

MARKS = {"good": "✓", "bad": "✗", "skipped": "~", "unknown": "·"}
_HEADS = {
    "found": "FOUND",
    "between": "BETWEEN",
    "same": "NO DIFFERENCE",
    "budget": "BUDGET SPENT",
    "unfit": "NO SEARCH",
    None: "OPEN",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Culprit:
    """What the first bad commit changed."""

    files: tuple[FileChange, ...] = ()
    patch: str = ""
    """Patch as `git diff` writes it, cut where it is long."""
    inside: tuple[str, ...] = ()
    """Commands that search inside a merge, one for each branch that it merged."""


def history_strip(state: BisectState, width: int = 60) -> str:
    """A mark a commit, oldest first; of many commits each mark covers several, and shows the most significant one."""
    sides = state.sides
    count = min(width, len(sides))
    edges = [len(sides) * i // count for i in range(count + 1)]
    order = ("bad", "good", "skipped", "unknown")
    return "".join(MARKS[min(sides[a:b], key=order.index)] for a, b in pairwise(edges))


def mean_words(suspect: BisectCommit) -> str:
    """Mean of the values of a commit; `-` without any."""
    values = suspect.numbers
    if not values:
        return "-"
    return format_number(fmean(values)) if all(map(math.isfinite, values)) else "diverged"


def headline(state: BisectState) -> str:
    """One sentence."""
    commits = state.candidates
    if state.ending == "found":
        return f"{short(commits[0].sha)} {commits[0].subject}".rstrip()
    if state.ending == "between":
        ends = f"{short(commits[0].sha)} to {short(commits[-1].sha)}"
        return f"one of {len(commits)} commits, {ends}: the others cannot be measured"
    if state.ending == "same":
        return f"{state.metric} does not separate {short(state.suspects[0].sha)} from {short(state.suspects[-1].sha)}"
    if state.ending == "unfit":
        return state.notes[-1]
    span = f"{short(commits[0].sha)} to {short(commits[-1].sha)}"
    more = f"{len(commits)} commits are left, {span}" if len(commits) > 1 else f"only {short(commits[0].sha)} is left"
    return f"{more}; a larger --budget continues" if state.ending == "budget" else more


def measure_words(state: BisectState) -> str:
    """What was measured, and how sure the answer is."""
    where = f"at step {state.at:,} of {state.steps:,}" if state.at != state.steps else "after the whole training"
    if state.end_steps:
        where = f"at step {state.at:,} of trainings of {state.end_steps[0]:,} and {state.end_steps[1]:,} steps"
    sides = f"{mean_words(state.suspects[0])} is good, {mean_words(state.suspects[-1])} bad"
    return f"{state.metric} {where}: {sides} · wrong at most {percent(state.error)} of the time"


def spent_words(state: BisectState) -> str:
    """How many commits were measured, and the device time of it."""
    measured = [suspect for suspect in state.suspects if suspect.values]
    trained = sum(commit.origin == "trained" for commit in measured)
    hours = state.spent_seconds / 3600
    unit = state.resource.upper()
    amount = (
        f"{hours:.2g} {unit}-h"
        if hours >= 0.1
        else f"{format_seconds(state.spent_seconds)} of {time_of(state.resource)}"
    )
    return f"{len(measured)} of {len(state.suspects)} commits measured, {trained} by training: {amount}"


def render_bisection(state: BisectState, culprit: Culprit | None = None, *, width: int = WIDTH) -> str:
    """The answer with its evidence."""
    state = sanitized(state)
    head = _HEADS[state.ending]
    blocks = [
        [f"{head}  {clean(headline(state), width - len(head) - 2)}", clean(measure_words(state), width)],
        _table(state, width),
        [history_strip(state, width), *(clean(f"! {note}", width) for note in state.notes)],
        file_lines(culprit.files, width=width) if culprit else [],
        [spent_words(state), *_next(state, culprit)],
    ]
    return "\n\n".join("\n".join(line.rstrip() for line in block) for block in blocks if block)


def _table(state: BisectState, width: int) -> list[str]:
    """Commits of which something is known."""
    rows = [_row(suspect) for suspect in state.suspects if suspect.values or suspect.reason]
    if not rows:
        return []
    rows.insert(0, ("", "commit", "seeds", state.metric[:16], "spread", "from", ""))
    widths = [max(len(row[i]) for row in rows) for i in range(6)]
    room = max(8, width - sum(widths) - 12)
    return [_line(row, widths, room) for row in rows]


def _line(row: Sequence[str], widths: Sequence[int], room: int) -> str:
    mark, sha, seeds, value, spread, origin, subject = row
    numbers = f"{seeds:>{widths[2]}}  {value:>{widths[3]}}  {spread:>{widths[4]}}"
    return f"{mark:<{widths[0]}} {sha:<{widths[1]}}  {numbers}  {origin:<{widths[5]}}  {clean(subject, room)}"


def _row(each: BisectCommit) -> tuple[str, ...]:
    values = each.numbers
    spread = format_number(max(values) - min(values)) if len(values) > 1 and all(map(math.isfinite, values)) else "-"
    reason = each.reason if each.side == "skipped" or (each.reason and not values) else each.subject
    return MARKS[each.side], short(each.sha), str(len(values)), mean_words(each), spread, each.origin, reason


def _next(state: BisectState, culprit: Culprit | None) -> list[str]:
    if state.ending == "found" and state.first_bad:
        places = [suspect.sha for suspect in state.suspects]
        before = state.suspects[places.index(state.first_bad) - 1].sha
        inside = [f"      {command}" for command in culprit.inside] if culprit else []
        return [f"next  git show {short(state.first_bad)} · git diff {short(before)} {short(state.first_bad)}", *inside]
    if state.ending == "same" and state.end_steps:
        return [f"next  gangline diff {short(state.suspects[0].sha)} {short(state.suspects[-1].sha)}"]
    if state.ending == "same":
        return [f"next  more seeds show smaller differences: --seeds {2 * state.seeds}"]
    if state.ending == "unfit":
        return [f"next  {_after_no_search(state)}"]
    return []


def _after_no_search(state: BisectState) -> str:
    """An end that failed is run again to see why; one without a value at the step has none in another run either."""
    good, bad = short(state.suspects[0].sha), short(state.suspects[-1].sha)
    broken = next((commit for commit in (state.suspects[0], state.suspects[-1]) if commit.reason), None)
    if broken is None:
        return f"gangline diff {good} {bad}"
    if not broken.unreported:
        return f"gangline run --commit {short(broken.sha)}"
    if state.asked_at is not None:
        return bisection(state.metric, good, bad)
    return f"another end or metric: {short(broken.sha)} trains, and does not report {state.metric}"
