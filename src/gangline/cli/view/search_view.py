"""Screen of a search: a line for each trial that ends, a strip of all, what is left; the same as JSON lines."""

import sys
import time

from gangline.cli.terminal import say, say_over
from gangline.report.search.text import setting_words
from gangline.report.text import clean
from gangline.sanitize import to_json
from gangline.spec.codec import to_plain
from gangline.spec.search import SearchAnswer, SearchRequest, SearchView, Trial
from gangline.units import format_seconds

_BARS = "▁▂▃▄▅▆▇█"
_MARKS = {"pruned": "·", "failed": "x", "running": "~", "waiting": "."}
_MOST_MARKS = 60


class SearchScreen:
    """Shows what changed since the last view; on stderr for a person, JSON lines on stdout for a program."""

    def __init__(self, *, json: bool = False) -> None:
        self._json = json
        self._shown: dict[int, str] = {}
        self._notes: set[str] = set()
        self._moving = sys.stderr.isatty() and not json
        self._began = time.monotonic()
        self._ended_at_first: int | None = None

    def show(self, view: SearchView) -> None:
        """Trials that ended or began since, and where the search stands."""
        done = [each for each in view.trials if each.state in ("ended", "pruned", "failed")]
        if self._ended_at_first is None:
            self._ended_at_first = len(done)
            fresh = done if self._json else done[-5:]
            self._shown = {each.number: each.state for each in done if each not in fresh}
        for trial in view.trials:
            if self._shown.get(trial.number) == trial.state:
                continue
            self._shown[trial.number] = trial.state
            if self._json:
                say(to_json({"event": "trial", "time": round(time.time(), 3), "trial": to_plain(trial)}))
            elif trial in done:
                self._say(trial_line(view, trial))
        if self._moving:
            say_over(f"  {state_line(view)}{self._time_left(view, len(done))}")

    def note(self, text: str) -> None:
        """Say it once."""
        if text in self._notes:
            return
        self._notes.add(text)
        if self._json:
            say(to_json({"event": "note", "time": round(time.time(), 3), "text": text}))
        else:
            self._say(f"  {clean(text, 300)}")

    def end(self, view: SearchView) -> None:
        """The last view, with the answer where there is one."""
        if self._json:
            say(to_json({"event": "search", "time": round(time.time(), 3), "search": to_plain(view)}))
            return
        self._say(f"  {state_line(view)}")
        for line in answer_lines(view):
            self._say(line)

    def _time_left(self, view: SearchView, done: int) -> str:
        passed = done - (self._ended_at_first or 0)
        left = view.limits.trials - done
        if passed < 2 or left <= 0 or view.ending:
            return ""
        return f" · about {format_seconds((time.monotonic() - self._began) / passed * left)} left"

    def _say(self, text: str) -> None:
        if self._moving:
            say_over()
        say(text, err=True)


def trial_line(view: SearchView, trial: Trial) -> str:
    """`17  ended 5,400  optimizer.elementwise.lr 4.1e-3  eval_loss 2.318  best so far`."""
    request = view.request
    settings = "  ".join(f"{clean(key, 60)} {setting_words(value)}" for key, value in sorted(trial.settings.items()))
    state = f"{trial.state} at {trial.step:,}" if trial.state == "pruned" else trial.state
    words = [f"{trial.number:>4}  {state:<16}", settings, metric_words(request, trial)]
    if trial.taken:
        words.append(f"taken from {clean(trial.run, 60)}")
    elif trial.reason and trial.state not in ("pruned", "ended"):
        words.append(clean(trial.reason, 100))
    if trial.number == view.best:
        words.append("best so far")
    if trial.differs:
        words.append(f"differs: {clean(trial.differs, 80)}")
    return "  ".join(word for word in words if word)


def metric_words(request: SearchRequest, trial: Trial) -> str:
    """`eval_loss 2.318`, or the value at its last rung."""
    if trial.values:
        return "  ".join(
            f"{clean(name, 40)} {value:.4g}" for name, value in zip(request.metrics, trial.values, strict=False)
        )
    if trial.at_rungs:
        step, value = max(trial.at_rungs.items())
        return f"{clean(request.measured_by, 40)} {value:.4g} at {step:,}"
    return ""


def state_line(view: SearchView) -> str:
    """`▂▁▁··~~  31 of 40 · 6 running, 2 wait: ... · 12.4 of 24 GPU-h`."""
    counts = {state: [trial for trial in view.trials if trial.state == state] for state in ("running", "waiting")}
    done = len(view.trials) - sum(map(len, counts.values()))
    parts = [f"{strip(view)}  {done} of {view.limits.trials}"]
    if counts["running"] or counts["waiting"]:
        reason = next((clean(trial.reason, 80) for trial in counts["waiting"] if trial.reason), "")
        waits = f", {len(counts['waiting'])} wait" + (f": {reason}" if reason else "") if counts["waiting"] else ""
        parts.append(f"{len(counts['running'])} running{waits}")
    unit = view.request.resource.upper()
    limit = "" if view.limits.budget_hours is None else f" of {view.limits.budget_hours:.3g}"
    parts.append(f"{view.spent_hours:.3g}{limit} {unit}-h")
    if view.spent_money:
        parts.append(f"{view.spent_money:.3g} {view.request.currency}")
    if view.ending:
        parts.append({"trials": "done", "stopped": "stopped by hand"}.get(view.ending, f"ended: {view.ending}"))
    return " · ".join(parts)


def strip(view: SearchView) -> str:
    """Newest trials as bars: a lower bar is a better value; `·` pruned, `x` failed, `~` running, `.` waiting."""
    sign = 1.0 if view.request.better[0] == "lower" else -1.0
    values = sorted(sign * each.values[0] for each in view.trials if each.values)
    marks = []
    for trial in view.trials[-_MOST_MARKS:]:
        if not trial.values:
            marks.append(_MARKS.get(trial.state, "?"))
            continue
        place = values.index(sign * trial.values[0]) / max(1, len(values) - 1)
        marks.append(_BARS[round(place * (len(_BARS) - 1))])
    return "".join(marks)


def answer_lines(view: SearchView) -> list[str]:
    """The verdict, what matters most, what to do next."""
    request, lines = view.request, []
    matters = next(iter(view.importance.items()), None)
    share = f" · matters most: {clean(matters[0], 60)} ({matters[1]:.2f}, {view.importance_by})" if matters else ""
    if view.answer is not None:
        lines.append(_verdict(view.answer) + share)
        if view.answer.verdict == "BETTER":
            lines.append(f"        gangline search apply {request.id} writes its keys into line.toml")
    elif view.front:
        numbers = ", ".join(map(str, view.front[:20]))
        lines.append(f"Pareto front: trials {numbers}{share}")
    elif view.best is not None:
        lines.append(f"best: trial {view.best}, unconfirmed{share}")
    return lines


def _verdict(answer: SearchAnswer) -> str:
    if answer.winner is None or answer.base is None:
        return f"{answer.verdict}  trial {answer.trial}: {clean(answer.reason, 200)}"
    band = "" if answer.band_percent is None else f" ± {answer.band_percent:.2g} %"
    return (
        f"{answer.verdict}  trial {answer.trial} on fresh seeds: {clean(answer.metric, 40)}"
        f" {answer.winner:.4g} against {answer.base:.4g}{band}"
    )
