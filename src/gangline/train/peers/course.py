"""The course of a gang, in the hands of the keeper that decides: which generation is next, if any, and why."""

import time
from collections.abc import Sequence

from gangline.train.budget import RestartBudget
from gangline.train.outcome import LostNode, Outcome
from gangline.train.peers.company import Keeping, Start
from gangline.train.peers.reports import Report, join
from gangline.train.stop import StopOrder
from gangline.train.verdict import Verdict, judge


class Course:
    def __init__(self, keeper: Keeping, *, max_events: int, first: int = 0) -> None:
        """`max_events`: how often a gang may start anew for what it has to pay for; `first`: its first generation."""
        self.keeper = keeper
        self.budget = RestartBudget(max_events)
        self.generation = first
        """The next one, or the one that runs."""
        self.restarts = 0
        self.reason = ""
        self.began = 0.0
        """When the last generation was told to start, by this keeper's clock."""
        self.outcome: Outcome | None = None
        """How it ended, on all nodes."""

    def start(self) -> Start:
        port = self.keeper.open_store()
        self.began = time.monotonic()
        return Start(generation=self.generation, port=port, restarts=self.restarts, reason=self.reason)

    def judge(
        self, reports: Sequence[Report], *, order: StopOrder | None = None, lost: LostNode | None = None
    ) -> Verdict:
        """What follows from how the generation ended; the budget is charged where that costs."""
        joined = join(reports, began=self.began, order=order, lost=lost)
        self.outcome = outcome = joined.outcome
        death = outcome.lost or outcome.failed
        died = death.mono if death else time.monotonic()
        return judge(outcome, self.budget, oom_kills=joined.oom_kills, now=died, word=joined.word)

    def go_on(self, verdict: Verdict) -> None:
        """To the next generation, after the pause that `verdict` wants."""
        self.generation += 1
        self.restarts += 1
        self.reason = verdict.reason
        self.keeper.event("restart", reason=verdict.reason, charged=verdict.charged, generation=self.generation)
        self.keeper.waits(verdict.reason)
        patience = time.monotonic() + verdict.pause_seconds
        while time.monotonic() < patience and self.keeper.own_order() is None:
            self.keeper.wait(patience - time.monotonic())
