"""Driver of one search: asks for settings, drives their runs, stops those that fall behind, and says when it is over.

It holds the lease next to `search.json`. All that it knows is in the journal and in the records of runs: whatever kills
it at any point, the next driver goes on with the same trials and trains none twice. What runs is left running.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Protocol

from gangline.errors import CancelledError
from gangline.line.run import lease
from gangline.search import budget
from gangline.search.population import PopulationRounds
from gangline.search.searches import best_trial, search_prefix, trial_record, view_of
from gangline.search.space import grid_size
from gangline.search.study import ENDED, FAILED, PRUNED, SearchStudy
from gangline.search.trials import RepositoryTrials, RunStatus
from gangline.spec.search import (
    Scalar,
    SearchAnswer,
    SearchEnding,
    SearchLimits,
    SearchRequest,
    SearchView,
    Trial,
    TrialState,
)
from gangline.storage.objects.protocol import ObjectStore

LOOK_SECONDS = 0.5
FIRST_FAILURES = 5
"""Trials that fail in a row, and are the first ones, end the search."""
STOP = "stop"
"""Attribute of a study: why somebody stopped it."""
ENDING = "ending"
OPEN = ("waiting", "running")


Confirm = Callable[[SearchView], SearchAnswer | None]
"""Trains the best trial and the base on fresh seeds."""


class Screen(Protocol):
    """Who shows a search."""

    def show(self, view: SearchView) -> None:
        """How it stands."""
        ...

    def note(self, text: str) -> None:
        """One sentence."""
        ...


class SearchDriver:
    """One search, new or resumed; `run` returns at its end."""

    def __init__(
        self, store: ObjectStore, request: SearchRequest, *, limits: SearchLimits, runs: RepositoryTrials,
        screen: Screen, trial_hours: float | None = None, base_values: Sequence[float] = (),
        pause: Callable[[float], None] = time.sleep,
    ) -> None:  # fmt: skip
        """Open the study; `trial_hours` is the forecast of a whole trial before the first has ended."""
        self._store, self._request, self._limits, self._runs, self._screen = store, request, limits, runs, screen
        self._forecast_hours, self._base_values, self._pause = trial_hours, list(base_values), pause
        self._prefix = search_prefix(request.project, request.id)
        self._study = SearchStudy(store, self._prefix, request, create=True)
        self._rounds = PopulationRounds(store, request, self._study) if request.pruner == "population" else None
        self._live: dict[int, RunStatus] = {}
        self._judged: set[tuple[int, int]] = set()
        """Trials and rungs that this process has judged."""
        self._holder = lease.this_process()

    def run(self, confirm: Confirm | None = None) -> SearchView:
        """Ask, drive and prune until no further trial is wanted and none is open; then confirm the best one.

        Raises:
            HeldError: Another process drives this search.
            CancelledError: Somebody stopped it while the best trial was confirmed.
            StorageError: The store failed; what runs goes on, the same call resumes.
        """
        with self._leased():
            self._study.write(STOP, "")
            self._study.write(ENDING, "")
            if self._base_values:
                self._study.write("base_values", self._base_values)
            ending = self._drive()
            answer = None
            if confirm is not None and ending in ("trials", "budget", "patience"):
                self._screen.show(self.view())
                answer = confirm(self.view())
                self._write_confirmation_cost(answer)
            self._study.write(ENDING, ending)
            return self.view(answer)

    def stop(self, reason: str) -> SearchView:
        """Stop every open trial of a search without a driver; returns once none is open.

        Raises:
            HeldError: Another process drives it: that one sees the reason and stops them.
        """
        self._study.write(STOP, reason)
        with self._leased():
            self._study.write(ENDING, self._drive())
            return self.view()

    @property
    def stop_reason(self) -> str:
        """Why somebody stopped the search; empty: no one did."""
        return str(self._study.attributes.get(STOP, ""))

    def require_going(self, run: str) -> None:
        """Raise while the best trial is confirmed and somebody stops the search; its run is stopped, too.

        Raises:
            CancelledError: Somebody stopped it.
            HeldError: Another driver has it.
        """
        self._require_lease()
        if reason := self.stop_reason:
            self._runs.cancel(run, reason)
            raise CancelledError(f"{self._request.id} was stopped while its answer was measured: {reason}")

    def view(self, answer: SearchAnswer | None = None) -> SearchView:
        """The search as this driver sees it."""
        trials = tuple(self._with_status(trial) for trial in self._study.trials())
        return view_of(self._study, trials, self._limits, answer)

    @contextmanager
    def _leased(self) -> Iterator[None]:
        acquired = lease.acquire_lease(self._store, self._prefix, holder=self._holder, at_least=0)
        with lease.renewed_lease(self._store, self._prefix, acquired, on_problem=self._screen.note):
            yield

    def _require_lease(self) -> None:
        """Raise HeldError once another driver has the search."""
        held = lease.read_lease(self._store, self._prefix)
        if held is None or held.holder != self._holder:
            raise lease.HeldError(f"{self._request.id} is driven by another process now; this one has stopped")

    def _drive(self) -> SearchEnding:
        try:
            while True:
                self._require_lease()
                ending = self._ending()
                if ending == "stopped":
                    self._cancel_all()
                for trial in self._open():
                    self._advance(trial)
                ending = ending or self._start_more()
                if ending is not None:
                    self._drop_unbegun()
                self._screen.show(self.view())
                if ending is not None and not self._open():
                    return ending
                self._pause(LOOK_SECONDS)
        finally:
            self._runs.leave()

    def _open(self) -> list[Trial]:
        return [trial for trial in self._study.trials() if trial.state in OPEN]

    def _ending(self) -> SearchEnding | None:
        """Why no further trial is started; None: another one may be."""
        trials = self._study.trials()
        over = [trial for trial in trials if trial.state not in OPEN]
        first = over[:FIRST_FAILURES]
        if self._study.attributes.get(STOP):
            return "stopped"
        if len(first) == FIRST_FAILURES and all(
            trial.state == "failed" and self._study.attribute(trial.number, "own_fault") for trial in first
        ):
            return "failures"
        best = best_trial(self._request, tuple(trials))
        single = len(self._request.metrics) == 1 and self._rounds is None  # a later round is better by its steps
        if single and self._limits.patience and best is not None:
            since = [trial for trial in over if trial.number > best and trial.state != "failed"]
            if len(since) >= self._limits.patience:
                return "patience"
        most = self._limits.trials if self._rounds is None else self._rounds.num_trials
        if self._request.sampler == "grid":
            most = min(most, grid_size(self._request.space) or most)
        lacks = any(trial.state in OPEN and not trial.run for trial in trials)  # begun, without settings or a run yet
        return "trials" if len(trials) >= most and not lacks else None

    def _start_more(self) -> SearchEnding | None:
        """Ask for trials as far as devices and budget allow; `budget` where none fits and none runs."""
        while (ending := self._ending()) is None:
            trials = self._study.trials()
            begun = [trial for trial in trials if trial.state in OPEN and trial.run]
            if len(begun) >= self._limits.parallel:
                return None
            if self._rounds is not None and not self._rounds.may_ask():
                return None if begun else "failures"
            hours, share = self._trial_hours(trials), 1.0 if self._rounds is None else self._rounds.share
            spent = sum(trial.device_hours for trial in trials)
            running = [self._study.attribute(trial.number, "forecast") for trial in begun if not trial.taken]
            confirmation = None if hours is None else budget.confirm_hours(self._limits, hours / share)
            if not budget.may_start(
                self._limits.budget_hours, spent=spent, running=running, trial=hours, confirmation=confirmation
            ):
                return None if begun else "budget"
            self._advance(self._study.ask())
        return ending

    def _advance(self, trial: Trial) -> None:
        """Do what is next for one open trial; each step is found done when it is tried again."""
        if trial.settings.keys() < self._request.space.keys():
            return  # asked for again by `_start_more`
        if not trial.run:
            run = self._runs.identify(self._settings_of(trial))
            twin = self._twin(trial, run.id)
            forecast = self._trial_hours(self._study.trials())
            self._study.note(trial.number, forecast=forecast, again=run.again, taken=run.existed or twin is not None)
            self._study.note(trial.number, run=run.id)
            trial = self._study.trial(trial.number)
        twin = self._twin(trial, trial.run)
        if twin is not None:
            self._follow_twin(trial, twin)
            return
        status = self._live[trial.number] = self._runs.look(trial.run)
        if status.state in ("ended", "failed", "cancelled"):
            del self._live[trial.number]
            self._settle(trial, status)
            return
        if status.state == "absent" and self.stop_reason:
            self._study.note(trial.number, reason="stopped before it began")
            self._study.tell(trial.number, FAILED)
            return
        if not status.is_driven:
            again = bool(self._study.attribute(trial.number, "again"))
            self._runs.start(trial.run, self._settings_of(trial), again=again)
        if not trial.taken:  # a run that somebody else began is theirs to stop
            self._judge(trial, status)

    def _trial_hours(self, trials: list[Trial]) -> float | None:
        """Forecast of a trial, by those that have ended; of a population's member it is a round's."""
        whole, share = self._forecast_hours, 1.0 if self._rounds is None else self._rounds.share
        otherwise = None if whole is None else whole * share
        return budget.trial_hours(trials, steps=self._request.steps, otherwise=otherwise)

    def _settings_of(self, trial: Trial) -> dict[str, Scalar]:
        """Keys that its run is trained with: a member of a population has more than were drawn."""
        return trial.settings if self._rounds is None else self._rounds.settings_of(trial)

    def _twin(self, trial: Trial, run: str) -> Trial | None:
        """The earlier trial of this search with the same run."""
        return next((each for each in self._study.trials()[: trial.number] if each.run == run), None)

    def _follow_twin(self, trial: Trial, twin: Trial) -> None:
        """End a trial as the earlier one with equal settings ended."""
        if twin.state in OPEN:
            self._live[trial.number] = RunStatus(
                state="waiting", reason=f"its settings are those of trial {twin.number}"
            )
            return
        self._study.note(trial.number, reason=f"settings of trial {twin.number}")
        for step, value in twin.at_rungs.items():
            self._study.judge(trial.number, step, value)
        state = {"ended": ENDED, "pruned": PRUNED}.get(twin.state, FAILED)
        self._study.tell(trial.number, state, twin.values or None)

    def _judge(self, trial: Trial, status: RunStatus) -> None:
        """Report each rung that was reached; stop the run where the pruner says so."""
        if self._rounds is not None:
            return
        if self._study.is_pruned(trial.number):
            self._runs.cancel(trial.run, trial.reason)
            return
        for rung in self._request.rungs:
            value = status.at(rung, self._request.measured_by)
            if value is None:
                return
            if (trial.number, rung) in self._judged:
                continue
            self._judged.add((trial.number, rung))
            if not self._study.judge(trial.number, rung, value):
                reason = f"pruned at step {rung}"
                self._study.note(trial.number, reason=reason)
                self._runs.cancel(trial.run, reason)
                return

    def _settle(self, trial: Trial, status: RunStatus) -> None:
        """Tell how a run ended; values are those of its record."""
        cost = {"steps": status.step}
        spent = {} if trial.taken else {"hours": status.hours, "money": status.money}
        pruned = self._study.is_pruned(trial.number)
        if status.state == "ended":
            if self._rounds is None:
                values = {rung: status.at(rung, self._request.measured_by) for rung in self._request.rungs}
            else:
                values = {self._rounds.end_of(trial.number): next(iter(status.values or ()), None)}
            for rung, value in values.items():
                if value is not None:
                    self._study.judge(trial.number, rung, value)
        reason = "" if status.state == "ended" else trial.reason if pruned else status.reason or status.state
        self._study.note(trial.number, reason=reason, own_fault=status.is_own_fault, cost={**cost, **spent})
        if status.state == "ended":
            self._study.tell(trial.number, ENDED, status.values)
        else:
            self._study.tell(trial.number, PRUNED if pruned and status.state == "cancelled" else FAILED)

    def _cancel_all(self) -> None:
        """Ask all open runs to stop, but those that somebody else began."""
        for trial in self._open():
            if trial.run and not trial.taken:
                self._runs.cancel(trial.run, "the search was stopped")
            elif trial.run:
                self._study.note(trial.number, reason="the search was stopped; its run is another's and goes on")
                self._study.tell(trial.number, FAILED)

    def _drop_unbegun(self) -> None:
        """Trials without a run, of a driver that was killed, are not begun any more."""
        for trial in self._open():
            if not trial.run:
                self._study.note(trial.number, reason="not begun: the search has ended")
                self._study.tell(trial.number, FAILED)

    def _write_confirmation_cost(self, answer: SearchAnswer | None) -> None:
        records = [trial_record(self._store, self._request, run) for run in (answer and answer.runs) or ()]
        hours = [record.ledger.allocated_seconds / 3600 for record in records if record is not None and record.ledger]
        if hours:
            self._study.write("confirm_hours", sum(hours))

    def _with_status(self, trial: Trial) -> Trial:
        """An open trial as its run stands."""
        status = self._live.get(trial.number)
        if trial.state not in OPEN or status is None:
            return trial
        state: TrialState = "running" if status.state == "running" else "waiting"
        return replace(trial, state=state, step=max(status.step, trial.step), reason=trial.reason or status.reason)
