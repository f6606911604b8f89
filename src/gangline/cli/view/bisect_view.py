"""View of a bisection: a line per answer, the history as a strip, the remaining time."""

import re
import sys
import time

from gangline.bisect.decisions import steps_left
from gangline.cli.terminal import say, say_over
from gangline.launch.protocol import GangEvent
from gangline.line.record.observer import SilentObserver
from gangline.report.bisection.text import MARKS, history_strip, mean_words
from gangline.report.text import clean, short
from gangline.spec.bisect import BisectCommit, BisectState
from gangline.spec.record import Record
from gangline.units import format_seconds

_VALUE = re.compile(r"=[^\s,;]*")


class BisectView(SilentObserver):
    """Observer of the runs of a search and listener to its states; everything goes to stderr."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._quiet = quiet
        self._before: tuple[BisectCommit, ...] = ()
        self._began = time.monotonic()
        self._asked = 0
        self._run = ""
        self._notes: set[str] = set()
        """Notes that were shown, without values of keys, such as the seed of an experiment."""
        self._moving = sys.stderr.isatty()

    def tell(self, state: BisectState) -> None:
        """Say what is new since the state before."""
        fresh = [new for old, new in zip(self._before, state.suspects, strict=False) if _has_changed(old, new)]
        self._before = state.suspects
        for commit in fresh:
            self._asked += commit.origin == "trained"
            self._say(f"{MARKS[commit.side]} {short(commit.sha)}  {mean_words(commit):>8}  {_words(commit)}")
        if any(bisect_commit.side in {"good", "bad", "skipped"} for bisect_commit in fresh):
            self._say(f"  {history_strip(state)}   {self._time_left(state)}")

    def run_started(self, record: Record) -> None:
        self._run = f"{short(record.commit.sha)} {clean(record.commit.subject, 40)}"
        if not self._moving:
            self._say(f"  training {self._run}")

    def progress(self, stage: str, event: GangEvent) -> None:
        step = event.data.get("step")
        if self._moving and not self._quiet and event.kind == "progress" and step is not None:
            say_over(f"  {stage} {self._run}: step {clean(step, 20)}")

    def note(self, text: str) -> None:
        """Say it, unless an earlier training of the search had the same to say."""
        note = _VALUE.sub("=", text)
        if note not in self._notes:
            self._notes.add(note)
            self._say(f"  {clean(text)}")

    def _time_left(self, state: BisectState) -> str:
        left = steps_left(state.sides)
        if not left:
            return "done" if state.ending else "nothing left to measure"
        words = f"about {left} more {'commit' if left == 1 else 'commits'} to measure"
        each = (time.monotonic() - self._began) / self._asked if self._asked else None
        return f"{words}, {format_seconds(each * left)} left" if each else words

    def _say(self, text: str) -> None:
        if self._quiet:
            return
        if self._moving:
            say_over()
        say(text, err=True)


def _has_changed(old: BisectCommit, new: BisectCommit) -> bool:
    """A value alone is none: its judgement follows at once."""
    is_judged = new.side != "unknown" or new.doubt is not None or new.reason != ""
    has_more = new.side in {"good", "bad"} and len(old.values) != len(new.values)
    return is_judged and (has_more or (old.side, old.reason, old.doubt) != (new.side, new.reason, new.doubt))


def _words(each: BisectCommit) -> str:
    if each.reason:
        return f"{each.side}: {clean(each.reason, 80)}"
    side = each.side if each.side != "unknown" else "not clear yet"
    seeds = f"{len(each.values)} seed" + ("s" if len(each.values) != 1 else "")
    return f"{side}, {seeds}, {each.origin}  {clean(each.subject, 60)}"
