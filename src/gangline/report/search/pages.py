"""A search as one HTML file (best value over device time, trials as lines through their settings, rungs, front), and as
markdown for a pull request or a summary (five rows and the change of `line.toml`).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import unified_diff
from itertools import accumulate

from markupsafe import Markup

from gangline.report.pages import render_page
from gangline.report.palette import paint, stroke
from gangline.report.search import text
from gangline.report.svg import HEIGHT, WIDTH, Chart, Frame, grid, polyline, rect, share_bar, svg
from gangline.report.text import ZERO_WIDTH_SPACE, clean, code, markdown, percent, visible
from gangline.sanitize import sanitized
from gangline.spec.measurements import CurvePoint
from gangline.spec.search import Dimension, Scalar, SearchView, Trial
from gangline.units import format_number

MOST_LINES = 200
MOST_ROWS = 60
_TONES = {"BETTER": "passed", "SAME": "open", "WORSE": "failed"}
_COLORS = {"ended": "sky", "pruned": "grey", "failed": "red", "running": "orange", "waiting": "faint"}
_DOT = 7.0


@dataclass(frozen=True, slots=True)
class Axis:
    """One upright axis of the parallel lines, with the words at its ends."""

    name: str
    top: str
    bottom: str


@dataclass(frozen=True, slots=True)
class ParallelLines:
    """Drawing of trials as lines through their settings, left to right, and their axes."""

    svg: Markup
    axes: list[Axis]
    shown: int


def render_html_search(view: SearchView, *, live: bool = False) -> str:
    """The whole page; equal searches give equal bytes."""
    view = sanitized(view)
    rows = [*text.best_trials(view, MOST_ROWS), *text.other_trials(view)][:MOST_ROWS]
    answer = view.answer
    return render_page(
        "search.html.j2", view=view, request=view.request, word=text.verdict_of(view), head=text.headline(view),
        why=text.why(view), tone=_TONES.get(text.verdict_of(view), "open"), method=text.method_words(view),
        spent=text.spent_words(view), live=live,
        best=_draw_best(view), lines=_draw_lines(view), rungs=[
            (f"{step:,}", reached, stopped, "unknown" if value is None else format_number(value))
            for step, reached, stopped, value in text.rung_rows(view)
        ],
        trials=[_row(view, row) for row in rows], hidden=max(len(view.trials) - MOST_ROWS, 0),
        front=[trial for trial in text.best_trials(view, len(view.trials)) if trial.number in view.front],
        importance=[(key, share_bar(share, percent(share)), percent(share)) for key, share in view.importance.items()],
        values=text.value_words, settings=text.setting_words, commands=text.repeat_commands(view),
        runs=[] if answer is None or answer.runs is None else [*answer.runs],
        change=[] if answer is None else [(key, text.setting_words(value)) for key, value in answer.settings.items()],
    )  # fmt: skip


def _row(view: SearchView, trial: Trial) -> Mapping[str, object]:
    hours = text.hours_words(trial.device_hours, view.request.resource)
    settings = [text.setting_words(trial.settings[key]) if key in trial.settings else "-" for key in view.request.space]
    return {
        "mark": text.MARKS[trial.state], "number": trial.number, "state": trial.state,
        "value": text.value_words(trial), "settings": settings, "run": trial.run,
        "steps": f"{trial.step:,}" if trial.step or trial.state == "waiting" else "unknown",
        "hours": "none" if trial.taken else hours if trial.device_hours else "unknown",
        "note": text.note_of(view, trial),
        "tone": "better" if trial.number == view.best else "worse" if trial.state == "failed" else "unknown",
    }  # fmt: skip


def _draw_best(view: SearchView) -> Chart | None:
    """Best value so far over device time, in the order of the trials, and a mark for each value."""
    ended = [each for each in view.trials if each.values and math.isfinite(each.values[0])]
    if len(ended) < 2:
        return None
    took = [each.device_hours if math.isfinite(each.device_hours) else 0.0 for each in view.trials]
    hours = dict(zip((each.number for each in view.trials), accumulate(took), strict=True))
    better = max if view.request.better[0] == "higher" else min
    best = list(accumulate((each.values[0] for each in ended), better))
    bases = [base_value for base_value in view.base_values[:1] if math.isfinite(base_value)]
    near = _near([each.values[0] for each in ended], is_lower=view.request.better[0] == "lower")
    last = max(hours.values()) or 1.0
    frame = replace(Frame.around([CurvePoint(step=0, value=each) for each in near], bases), first=0.0, last=last)
    places = [frame.place(hours[ended[0].number], best[0])]
    for trial, value in zip(ended, best, strict=True):
        places += [(frame.place(hours[trial.number], value)[0], places[-1][1]), frame.place(hours[trial.number], value)]
    places.append((WIDTH, places[-1][1]))
    base = [polyline([frame.place(edge, each) for edge in (0.0, last)], f'{stroke("grey", 1.5)} stroke-dasharray="5 4"')
            for each in bases]  # fmt: skip
    dots = [_dot(view, each, frame.place(hours[each.number], each.values[0])) for each in ended]
    name = f"best {view.request.metrics[0]} so far, {format_number(best[0])} to {format_number(best[-1])}"
    body = "".join([grid(frame), *base, polyline(places, stroke("blue", 2.5)), *dots])
    words = [text.hours_words(last * share, view.request.resource) if share else "0" for share in (0, 0.5, 1)]
    return Chart(svg(body, WIDTH, HEIGHT, "chart", clean(name, 200)), frame.labels, words)


def _near(values: Sequence[float], *, is_lower: bool) -> list[float]:
    """The better three quarters: few bad values would hide how the good ones differ, and lie at the edge."""
    ranked = sorted(values, reverse=not is_lower)
    return ranked[: max(2, -(-3 * len(ranked) // 4))]


def _dot(view: SearchView, trial: Trial, place: tuple[float, float]) -> str:
    x, y = min(max(place[0], _DOT / 2), WIDTH - _DOT / 2), place[1]
    color = "green" if trial.number == view.best or trial.number in view.front else "sky"
    return rect((x - _DOT / 2, y - _DOT / 2, _DOT, _DOT), paint(color), _title(view, trial))


def _title(view: SearchView, trial: Trial) -> str:
    settings = ", ".join(f"{key} {text.setting_words(value)}" for key, value in trial.settings.items())
    value = f"{view.request.metrics[0]} {text.value_words(trial)}"
    return clean(f"trial {trial.number}, {trial.state}: {value}; {settings}", 300)


def _draw_lines(view: SearchView) -> ParallelLines | None:
    """A line a trial through its settings to its value; the best ones lie on top."""
    shown = [
        *text.best_trials(view, MOST_LINES),
        *(other_trial for other_trial in text.other_trials(view) if other_trial.settings),
    ][:MOST_LINES]
    if not shown:
        return None
    keys = list(view.request.space)
    scales = [_scale(key, view.request.space[key], [each.settings.get(key) for each in shown]) for key in keys]
    values = [each.values[0] for each in shown if each.values]
    if values:
        is_lower = view.request.better[0] == "lower"
        near = _near(values, is_lower=is_lower)
        scales.append(
            _Scale(view.request.metrics[0], min(near), max(near), turned=is_lower, is_cut=len(near) < len(values))
        )
    between = WIDTH / max(len(scales) - 1, 1)
    uprights = "".join(
        f'<path d="M{index * between:.1f} 0V{HEIGHT:g}" {stroke("faint", 1)}/>' for index in range(len(scales))
    )
    drawn = []
    for order, trial in reversed(list(enumerate(shown))):
        found = [*(trial.settings.get(key) for key in keys), *(trial.values[:1] or (None,) if values else ())]
        places = [
            (i * between, scale.height(value))
            for i, (scale, value) in enumerate(zip(scales, found, strict=True))
            if value is not None
        ]
        is_good = order < max(1, len(values) // 10) and bool(trial.values)
        line = polyline(
            places, stroke("blue" if is_good else _COLORS[trial.state], 3.5 if order == 0 else 1.6 if is_good else 1)
        )
        drawn.append(line.replace("/>", f"><title>{Markup.escape(_title(view, trial))}</title></polyline>"))
    label = f"{len(shown)} trials through {len(keys)} keys"
    axes = [Axis(scale.name, *scale.ends) for scale in scales]
    return ParallelLines(svg(uprights + "".join(drawn), WIDTH, HEIGHT, "chart parallel", label), axes, len(shown))


@dataclass(frozen=True, slots=True)
class _Scale:
    """Maps values of one axis to heights; better values lie at the top of the last one."""

    name: str
    low: float
    high: float
    log: bool = False
    turned: bool = False
    choices: tuple[Scalar, ...] = ()
    is_cut: bool = False
    """Whether worse values lie at its end, too."""

    @property
    def ends(self) -> tuple[str, str]:
        """Words at its top and bottom."""
        words = [text.setting_words(choice) for choice in (self.choices or (self.low, self.high))]
        top, bottom = words[-1], words[0]
        worst, best = (top, bottom) if self.turned else (bottom, top)
        return best, f"{worst} and worse" if self.is_cut else worst

    def height(self, value: Scalar) -> float:
        """Height in the drawing, from its top; what is no value of the axis lies at its nearest end."""
        if self.choices:
            share = (self.choices.index(value) if value in self.choices else 0) / max(len(self.choices) - 1, 1)
        else:
            low, high, here = (math.log(each) if self.log else each for each in (self.low, self.high, float(value)))
            share = (here - low) / (high - low) if high > low else 0.5
        share = min(max(share, 0.0), 1.0)
        return HEIGHT * (share if self.turned else 1 - share)


def _scale(key: str, axis: Dimension, values: Sequence[Scalar | None]) -> _Scale:
    """The range of a key, or its choices."""
    if axis.choices:
        return _Scale(key, 0.0, 1.0, choices=axis.choices)
    assert axis.low is not None, axis
    assert axis.high is not None, axis
    is_log = (
        axis.log
        and axis.low > 0
        and all(isinstance(value, (int, float)) and value > 0 for value in values if value is not None)
    )
    return _Scale(key, float(axis.low), float(axis.high), log=is_log)


MARKDOWN_ROWS = 5
MOST_CHANGED_LINES = 60


def render_markdown_search(view: SearchView, *, line: tuple[str, str] | None = None) -> str:
    """Verdict, five rows, what it cost; untrusted text is escaped.

    Args:
        view: The search.
        line: Text of `line.toml` before and with the winner's keys; none: no change is proposed.
    """
    view = sanitized(view)
    keys, trials = list(view.request.space), text.best_trials(view, MARKDOWN_ROWS)
    heads = ["trial", *view.request.metrics, *keys, "note"]
    table = [f"| {' | '.join(markdown(head, 80) for head in heads)} |", "|--:|" + "--:|" * (len(heads) - 2) + "--|"]
    for trial in trials:
        values = map(format_number, trial.values)
        settings = [text.setting_words(trial.settings[key]) if key in trial.settings else "unknown" for key in keys]
        cells = [str(trial.number), *values, *settings, text.note_of(view, trial)]
        table.append(f"| {' | '.join(markdown(cell, 120) for cell in cells)} |")
    blocks = [
        f"**{text.verdict_of(view)}** {markdown(text.headline(view))}",
        markdown(text.why(view)),
        "\n".join(table) if trials else "",
        _change(*line) if line else "",
        markdown(f"{text.spent_words(view)} · matters most: {text.importance_words(view)}"),
        f"{code(f'gangline search report {view.request.id} --open')} shows all trials",
    ]
    return "\n\n".join(block for block in blocks if block) + "\n"


def _change(before: str, after: str) -> str:
    """The change as a block that its own text cannot end."""
    lines = list(unified_diff(before.splitlines(), after.splitlines(), "line.toml", "line.toml", n=1, lineterm=""))
    shown = [visible(line, 200).replace("```", f"`{ZERO_WIDTH_SPACE}``") for line in lines[:MOST_CHANGED_LINES]]
    return "\n".join(["```diff", *shown, "```"])
