"""Search loop of a bisection: measures one commit after another until one is left or the budget is spent.

It knows neither git nor records nor training: measurements come from a `CommitMeasurer`. Each result is reported and
stored at once, so a search that was killed resumes where it was.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from gangline.bisect.decisions import EndValues, candidates, max_decisions, next_index, transient_regressions
from gangline.bisect.recorded_values import CommitValues
from gangline.spec.bisect import BisectCommit, BisectState, Ending

MAX_SEEDS = 4
"""Limit of seeds per commit, as a multiple of the requested ones; a commit still unclear is skipped."""


_OPEN_ENDS = "whether the bad end is worse at all is not clear yet"


class CommitMeasurer(Protocol):
    """Gives the values of commits of a history."""

    def recorded(self, sha: str) -> CommitValues:
        """Recorded values."""
        ...

    def key(self, sha: str) -> str:
        """Equal for commits with equal trainings; empty if not known."""
        ...

    def train(self, sha: str, seeds: Sequence[int]) -> str:
        """Train the commit with each of `seeds`, so that `recorded` has the values; returns the problem, or empty."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class BisectLimits:
    """Budget of a search, and the first seed of its trainings."""

    first_seed: int = 1
    budget_seconds: float | None = None
    """Rank-seconds of all trainings."""
    training_seconds: float | None = None
    """Forecast of one training, used until one was measured."""


def seconds_each(state: BisectState, limits: BisectLimits) -> float | None:
    """Rank-seconds of one training: measured by this search, else the forecast."""
    trained = [suspect for suspect in state.suspects if suspect.seconds and suspect.values]
    count = sum(len(commit.values) for commit in trained)
    return sum(commit.seconds for commit in trained) / count if count else limits.training_seconds


class BudgetSpentError(Exception):
    """The next training would exceed the budget."""


class Bisector:
    """A search over one state."""

    def __init__(
        self,
        state: BisectState,
        measurer: CommitMeasurer,
        limits: BisectLimits,
        *,
        on_state: Callable[[BisectState], None],
    ) -> None:
        """`keep` is called with every new state."""
        self.state = state
        self._measurer, self._limits, self._on_state = measurer, limits, on_state
        self._error = state.error / max_decisions(len(state.suspects))

    def run(self) -> BisectState:
        """Search to the end; returns the last state."""
        if self.state.ending in {None, "budget"}:
            self._change(ending=None)
            try:
                self._end(self._seek())
            except BudgetSpentError:
                self._end("budget")
        return self.state

    def _seek(self) -> Ending:
        for place in range(len(self.state.suspects)):
            self._read_records(place)
        try:
            ending = self._settle_ends()
        except BudgetSpentError:
            self._note(_OPEN_ENDS)
            raise
        if ending:
            return ending
        self._change(notes=tuple(note for note in self.state.notes if note != _OPEN_ENDS))
        self._judge_known()
        while (middle := next_index(self.state.sides)) is not None:
            self._settle(middle)
        return "found" if len(candidates(self.state.sides)) == 1 else "between"

    # -- the ends

    def _settle_ends(self) -> Ending | None:
        """None if both ends have values and the bad one is worse; else the ending of the search."""
        last = len(self.state.suspects) - 1
        for count in range(self.state.seeds, MAX_SEEDS * self.state.seeds + 1):
            for place in (0, last):
                self._measure(place, count)
                if problem := self.state.suspects[place].reason:
                    self._note(f"the {'good' if place == 0 else 'bad'} end cannot be measured: {problem}")
                    return "unfit"
            ends, better, error = self._ends(), self.state.better, self.state.error
            if ends.are_apart(better=better, error=error):
                return None
            if ends.are_swapped(better=better, error=error):
                self._note(f"{self.state.metric} is better at the bad end, but {better} values are better")
                return "unfit"
            if ends.repeat:
                break
        return "same"

    def _ends(self) -> EndValues:
        suspects = self.state.suspects
        others = [suspect.numbers for suspect in suspects[1:-1]]
        firm = tuple(values for values in others if len(values) > 1 and all(map(math.isfinite, values)))
        return EndValues(suspects[0].numbers, suspects[-1].numbers, firm)

    # -- one commit

    def _judge_known(self) -> None:
        for place, suspect in enumerate(self.state.suspects[1:-1], start=1):
            if suspect.values:
                self._judge(place)

    def _settle(self, place: int) -> None:
        """Measure a commit until its side is clear, or skip it."""
        self._copy_from_equal_commit(place)
        for count in range(1, MAX_SEEDS * self.state.seeds + 1):
            if self._judge(place):
                return
            self._measure(place, count)
            suspect = self.state.suspects[place]
            if suspect.reason:
                self._replace(place, replace(suspect, side="skipped"))
                return
        if not self._judge(place):
            suspect = self.state.suspects[place]
            reason = f"not clear after {len(suspect.values)} seeds"
            self._replace(place, replace(suspect, side="skipped", reason=reason))

    def _judge(self, place: int) -> bool:
        suspect = self.state.suspects[place]
        if suspect.side in {"good", "bad"}:
            return True
        values = suspect.numbers
        if not values:
            return False
        others = tuple(other for other in self._ends().others if other != values)
        judged = replace(self._ends(), others=others).judge(values)
        clear = judged.doubt <= self._error
        side = judged.side if clear else suspect.side
        self._replace(place, replace(suspect, side=side, doubt=judged.doubt, odd=judged.odd and clear))
        return clear

    def _measure(self, place: int, count: int) -> None:
        """Get at least `count` values of a commit: recorded ones, then by training the missing seeds."""
        suspect = self.state.suspects[place]
        first = self._limits.first_seed
        missing = [seed for seed in range(first, first + count) if str(seed) not in suspect.values]
        if len(suspect.values) >= count or not missing:
            return
        self._require_budget(len(missing))
        problem = self._measurer.train(suspect.sha, missing)
        self._read_records(place, trained=True)
        suspect = self.state.suspects[place]
        if problem or len(suspect.values) < count:
            problem_text = problem or f"it has {len(suspect.values)} of {count} values of {self.state.metric}"
            unreported = suspect.unreported or not (problem or suspect.reason)
            self._replace(place, replace(suspect, reason=suspect.reason or problem_text, unreported=unreported))

    def _read_records(self, place: int, *, trained: bool = False) -> None:
        """Update a commit with its recorded values."""
        suspect = self.state.suspects[place]
        recorded = self._measurer.recorded(suspect.sha)
        if recorded.left_out:
            self._note(f"runs of {suspect.sha[:8]} that do not count: {recorded.left_out}")
        values = {str(seed): value if math.isfinite(value) else str(value) for seed, value in recorded.values.items()}
        seconds = max(suspect.seconds, recorded.seconds)
        origin = "trained" if trained or seconds else suspect.origin or ("records" if values else "")
        commit = replace(
            suspect, values=suspect.values | values, runs=recorded.runs or suspect.runs, seconds=seconds,
            origin=origin if values or suspect.values else "", reason=suspect.reason or recorded.problem,
            unreported=suspect.unreported or recorded.unreported,
        )  # fmt: skip
        if commit != suspect:
            self._replace(place, commit)

    def _copy_from_equal_commit(self, place: int) -> None:
        """Copy the values of a commit whose training is equal."""
        suspect = self.state.suspects[place]
        key = "" if suspect.values or suspect.reason else self._measurer.key(suspect.sha)
        if not key:
            return
        for other in self.state.suspects:
            if other.values and other.sha != suspect.sha and self._measurer.key(other.sha) == key:
                origin = f"same as {other.sha[:8]}"
                self._replace(place, replace(suspect, values=other.values, runs=other.runs, origin=origin))
                return

    # -- budget and state

    def _require_budget(self, trainings: int) -> None:
        limit = self._limits.budget_seconds
        each = seconds_each(self.state, self._limits)
        if limit is not None and self.state.spent_seconds + (each or 0.0) * trainings > limit:
            raise BudgetSpentError

    def _end(self, ending: Ending) -> None:
        sides = self.state.sides
        left = candidates(sides)
        sha = self.state.suspects[left[0]].sha if ending == "found" else None
        self._change(ending=ending, first_bad=sha, notes=(*self.state.notes, *self._findings(ending)))

    def _findings(self, ending: Ending) -> list[str]:
        """Notes on values that do not fit a single regression."""
        if ending in {"same", "unfit"}:
            return []
        suspects = self.state.suspects
        notes = [
            f"{suspects[place].sha[:8]} was worse, too, and later commits better: there is more than one change"
            for place in transient_regressions(self.state.sides)
        ]
        odd = [suspect.sha[:8] for suspect in suspects if suspect.odd]
        if odd:
            notes.append(f"{', '.join(odd)}: similar to neither end; there is more than one change")
        return [note for note in notes if note not in self.state.notes]

    def _note(self, text: str) -> None:
        if text not in self.state.notes:
            self._change(notes=(*self.state.notes, text))

    def _replace(self, place: int, suspect: BisectCommit) -> None:
        suspects = list(self.state.suspects)
        suspects[place] = suspect
        self._change(suspects=tuple(suspects))

    def _change(self, **fields: object) -> None:
        self.state = replace(self.state, **fields)  # type: ignore[arg-type]  # names are those of BisectState
        self._on_state(self.state)
