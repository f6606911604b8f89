"""A search in words: what it found, what it spent, which commands repeat it; and the whole of it as text."""

import json
import math
import shlex
from collections.abc import Sequence

from gangline.report.facts import time_of
from gangline.report.text import clean, percent, short
from gangline.sanitize import sanitized
from gangline.spec.search import Scalar, SearchEnding, SearchView, Trial
from gangline.units import format_number, format_seconds

WIDTH = 100
ROWS = 10
MARKS = {"ended": "✓", "pruned": "~", "failed": "✗", "running": "▸", "waiting": "·"}
ENDINGS: dict[SearchEnding, str] = {
    "trials": "all trials have ended",
    "budget": "the budget is spent; a larger --budget continues",
    "patience": "no gain for as many trials as search.patience allows",
    "stopped": "stopped; the same command continues",
    "failures": "the first five trials failed by their own fault",
}


def verdict_of(view: SearchView) -> str:
    """`BETTER`, `SAME`, `WORSE` of an answer, `UNCONFIRMED` without one, `OPEN` while it goes on."""
    if view.answer is not None:
        return view.answer.verdict.upper()
    return "OPEN" if view.ending is None else "UNCONFIRMED"


def headline(view: SearchView) -> str:
    """One sentence: the winner against the base, or the best trial so far."""
    answer, count = view.answer, len(view.trials)
    if answer is not None and answer.winner is not None and answer.base is not None:
        band = "" if answer.band_percent is None else f" ± {percent(answer.band_percent / 100)}"
        seeds = f"on {view.limits.confirm_seeds} fresh seeds"
        return (
            f"trial {answer.trial} {seeds}: {format_number(answer.winner)} against {format_number(answer.base)}{band}"
        )
    best = best_trials(view, 1)
    if not best:
        return f"no trial of {count} has a value"
    front = f", one of {len(view.front)} on the front" if len(view.front) > 1 else ""
    values = zip(view.request.metrics, best[0].values, strict=False)
    return f"trial {best[0].number}{front}: {', '.join(f'{name} {format_number(value)}' for name, value in values)}"


def why(view: SearchView) -> str:
    """The reason behind the verdict, or why no further trial starts; nothing while it goes on."""
    if view.answer is not None:
        return view.answer.reason
    return "" if view.ending is None else ENDINGS[view.ending]


def best_trials(view: SearchView, count: int) -> list[Trial]:
    """Ended trials, those of the front first, then by the first metric."""
    sign = -1.0 if view.request.better[0] == "higher" else 1.0
    ended = [
        trial for trial in view.trials if trial.state == "ended" and trial.values and math.isfinite(trial.values[0])
    ]
    front = set(view.front)
    return sorted(ended, key=lambda trial: (trial.number not in front, sign * trial.values[0], trial.number))[:count]


def other_trials(view: SearchView) -> list[Trial]:
    """Trials without a value, the furthest first."""
    ended = {trial.number for trial in best_trials(view, len(view.trials))}
    return sorted(
        (trial for trial in view.trials if trial.number not in ended), key=lambda trial: (-trial.step, trial.number)
    )


def value_words(trial: Trial) -> str:
    """Values of an ended trial, else the one at its last rung and where that was; unknown without one."""
    if trial.values:
        return " · ".join(map(format_number, trial.values))
    step = max(trial.at_rungs, default=None)
    return "unknown" if step is None else f"{format_number(trial.at_rungs[step])} at step {step:,}"


def setting_words(value: Scalar) -> str:
    """A value of a key as a person reads it."""
    if isinstance(value, float):
        return format_number(value)
    return str(value).lower() if isinstance(value, bool) else clean(value, 60)


def settings_words(trial: Trial) -> str:
    """`lr 4.1e-3 · global_batch 32`: last words of the keys, which the head of a table has whole."""
    return " · ".join(f"{key.rpartition('.')[2]} {setting_words(value)}" for key, value in trial.settings.items())


def note_of(view: SearchView, trial: Trial) -> str:
    """What is special about a trial, in a few words."""
    parent = "" if trial.parent is None else f"from trial {trial.parent}"
    notes = ["on the front" if trial.number in view.front and len(view.front) > 1 else ""]
    notes += ["best" if trial.number == view.best else "", trial.reason, parent]
    notes += ["taken from an earlier run" if trial.taken else "", trial.differs and f"record: {trial.differs}"]
    return "; ".join(filter(None, notes))


def hours_words(hours: float, resource: str) -> str:
    """`12.4 GPU-h`; of less than a tenth the time."""
    unit = resource.upper()
    return f"{hours:.3g} {unit}-h" if hours >= 0.1 else f"{format_seconds(hours * 3600)} of {time_of(resource)}"


def spent_words(view: SearchView) -> str:
    """`40 of 40 trials, 26 pruned, 1 failed · 12.4 of 24 GPU-h · 31.20 EUR`."""
    states = [trial.state for trial in view.trials]
    counts = [f"{states.count(each)} {each}" for each in ("running", "waiting", "pruned", "failed") if each in states]
    limit, request = view.limits.budget_hours, view.request
    hours = hours_words(view.spent_hours, request.resource)
    hours += "" if limit is None else f", at most {hours_words(limit, request.resource)}"
    money = [] if view.spent_money is None else [f"{view.spent_money:.2f} {clean(request.currency, 8)}"]
    return " · ".join([", ".join([f"{len(states)} of {view.limits.trials} trials", *counts]), hours, *money])


def method_words(view: SearchView) -> str:
    """`tpe, halving at 200 600 1,800`: who proposes, who stops, and by what."""
    request = view.request
    rungs = " ".join(f"{rung:,}" for rung in request.rungs)
    members = f"population of {request.population}" if request.pruner == "population" else request.pruner
    stops = f"{members} at {rungs}" if rungs and request.pruner != "none" else members
    judged = f", judged by {request.measured_by}" if request.measured_by not in request.metrics and rungs else ""
    return f"{request.sampler}, {'no pruner' if request.pruner == 'none' else stops}{judged}"


def importance_words(view: SearchView) -> str:
    """`lr 0.81, width 0.12 (fANOVA)`; unknown where too few trials have ended."""
    if not view.importance:
        keys = list(view.request.space)
        return f"{keys[0]} is the only key" if len(keys) == 1 else "unknown: too few trials have ended"
    shares = ", ".join(f"{key} {share:.2f}" for key, share in view.importance.items())
    return f"{shares} ({view.importance_by})"


def rung_rows(view: SearchView) -> list[tuple[int, int, int, float | None]]:
    """(step, trials that reached it, trials that were stopped there, best value) of each rung."""
    request, rows = view.request, []
    is_higher = request.better[0] == "higher" and request.measured_by == request.metrics[0]
    for step in request.rungs:
        values = [trial.at_rungs[step] for trial in view.trials if math.isfinite(trial.at_rungs.get(step, math.nan))]
        reached = sum(step in trial.at_rungs for trial in view.trials)
        stopped = sum(trial.state == "pruned" and max(trial.at_rungs, default=0) == step for trial in view.trials)
        rows.append((step, reached, stopped, (max if is_higher else min)(values, default=None)))
    return rows


def repeat_commands(view: SearchView) -> list[str]:
    """Commands that show, repeat and use the search; text of the line is quoted for a shell."""
    request, answer = view.request, view.answer
    sets = "".join(f" --set {quoted(override)}" for override in request.overrides)
    commands = [f"git checkout {short(request.commit)}", f"gangline search --trials {view.limits.trials}{sets}"]
    for best_trial in best_trials(view, 1):
        settings = (f"{key}={json.dumps(value)}" for key, value in best_trial.settings.items())
        own = "".join(f" --set {quoted(text)}" for text in settings)
        commands.append(f"gangline run --commit {short(request.commit)}{sets}{own}")
    if answer is not None and answer.runs is not None:
        commands.append(f"gangline diff {answer.runs[1]} {answer.runs[0]}")
    if best := best_trials(view, 1):
        trial = "" if answer is not None and answer.verdict == "BETTER" else f" --trial {best[0].number}"
        commands.append(f"gangline search apply {request.id}{trial}")
    return commands


def quoted(text: str) -> str:
    """A word of a POSIX shell."""
    return shlex.quote(clean(text, 400))


def render_search(view: SearchView, *, width: int = WIDTH) -> str:
    """The answer with its evidence."""
    view = sanitized(view)
    word, request = verdict_of(view), view.request
    blocks = [
        [f"{word}  {clean(headline(view), width - len(word) - 2)}", clean(why(view), width)],
        [clean(f"{request.id} · {method_words(view)} · {spent_words(view)}", 2 * width)],
        [clean(f"matters most: {importance_words(view)}", 2 * width)] if view.trials else [],
        table(view, [*best_trials(view, ROWS), *other_trials(view)][:ROWS], width=width),
        [
            f"next  {command}" if index == 0 else f"      {command}"
            for index, command in enumerate(repeat_commands(view))
        ],
    ]
    return "\n\n".join("\n".join(line.rstrip() for line in block if line) for block in blocks if block) + "\n"


def table(view: SearchView, trials: Sequence[Trial], *, width: int) -> list[str]:
    """Rows of trials in columns: number, state, value, settings, note."""
    rows = [
        (
            MARKS[trial.state],
            str(trial.number),
            trial.state,
            value_words(trial),
            settings_words(trial),
            note_of(view, trial),
        )
        for trial in trials
    ]
    widths = [max((len(row[column]) for row in rows), default=0) for column in range(5)]
    lines = ("  ".join(cell.ljust(size) for cell, size in zip(row, widths, strict=False)) for row in rows)
    return [f"{line}  {clean(row[5], max(width - len(line) - 2, 20))}" for line, row in zip(lines, rows, strict=True)]
