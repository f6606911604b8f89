"""The course of a gang, in the hands of the keeper that decides: which generation is next, if any, and why."""

import time
from collections.abc import Sequence

from gangline.errors import SIGTERM_CODE
from gangline.train.budget import RestartBudget
from gangline.train.exit_codes import RankExit, classify, describe
from gangline.train.outcome import LostNode, Outcome
from gangline.train.peers.company import Keeping, Start
from gangline.train.peers.reports import Report, join
from gangline.train.peers.shape import Shape, Sizes
from gangline.train.stop import StopOrder
from gangline.train.verdict import Verdict, judge


class Course:
    def __init__(self, keeper: Keeping, *, max_events: int, sizes: Sizes, first: int = 0) -> None:
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
        self._sizes = sizes
        self._shape: Shape | None = None
        self._without: dict[int, str] = {}
        """Nodes that are left out for good, with the reason."""
        self._answered = -1
        """Generation whose wish for that was answered."""

    def fits(self, nodes: Sequence[int]) -> bool:
        """A generation of `nodes` alone can go on."""
        return self._fitting(nodes) is not None

    def start(self, nodes: Sequence[int]) -> Start:
        """The next generation, on all or some of the `nodes` that are there."""
        shape, before = self._fitting(nodes), self._shape
        assert shape is not None, "who starts has asked whether it fits"
        if before is not None and before.world_size != shape.world_size:
            words = f"from {before.world_size} to {shape.world_size} ranks: {self.reason}"
            self.keeper.event(
                "resized", before=before.world_size, after=shape.world_size, generation=self.generation, reason=words
            )
        self._shape = shape
        port = self.keeper.open_store()
        self.began = time.monotonic()
        return Start(generation=self.generation, port=port, shape=shape, restarts=self.restarts, reason=self.reason)

    def resize(self, nodes: Sequence[int]) -> StopOrder | None:
        """The order to leave for another size, where the `nodes` that are there allow what is wanted; None: stay."""
        self._leave_out(nodes)
        wanted, now = self._fitting(nodes), self._shape
        if wanted is None or now is None:
            return None
        slow = [self._without[node] for node in now.nodes if node in self._without]
        if wanted.world_size == now.world_size and not slow:
            return None
        asked = self.keeper.wanted_ranks()
        why = f"{asked} ranks were asked for" if asked is not None else f"{len(nodes)} nodes are there"
        why = slow[0] if slow else why
        return StopOrder(exit_code=SIGTERM_CODE, reason=why, save=True, resize=True)

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
        self.reason = verdict.reason
        if not verdict.resize:
            self.restarts += 1
            self.keeper.event("restart", reason=verdict.reason, charged=verdict.charged, generation=self.generation)
        self.keeper.waits(verdict.reason)
        patience = time.monotonic() + verdict.pause_seconds
        while time.monotonic() < patience and self.keeper.own_order() is None:
            self.keeper.wait(patience - time.monotonic())

    def replace(self, dead: Sequence[RankExit], *, oom_kills: int) -> Start | None:
        """A generation in which the living stay; charged like a restart, and refused where that would be."""
        retries = {classify(each, oom_kills=oom_kills)[1] for each in dead}
        if not retries <= {"free", "same"} or any(each.saved for each in dead):
            return None
        answer = self.budget.charge(max(each.mono for each in dead))
        if answer == "refused":
            return None
        self.generation += 1
        self.restarts += 1
        self.reason = "; ".join(describe(each) for each in dead) + ": started again alone"
        self.keeper.event(
            "replaced", ranks=[each.rank for each in dead], reason=self.reason, charged=answer == "charged",
            generation=self.generation,
        )  # fmt: skip
        port = self.keeper.open_store()
        return Start(
            generation=self.generation, port=port, shape=self._shape, restarts=self.restarts, reason=self.reason
        )

    def _leave_out(self, nodes: Sequence[int]) -> None:
        """Hear of a slow node; the gang goes on without it where it can."""
        now, wish = self._shape, self.keeper.eviction(self.generation)
        if wish is None or now is None or self._answered == self.generation:
            return
        self._answered = self.generation
        node = now.nodes[wish.rank // now.per_node]
        rest = [each for each in nodes if each != node]
        if node == 0 or self._fitting(rest) is None:
            why = "it leads the gang" if node == 0 else f"the plan has no size for {len(rest)} nodes"
            self.keeper.event("not_evicted", node=node, rank=wish.rank, generation=self.generation, reason=why)
            return
        self._without[node] = f"node {node} is left out: {wish.reason}"
        self.keeper.event("evicted", node=node, rank=wish.rank, generation=self.generation, reason=wish.reason)

    def _fitting(self, nodes: Sequence[int]) -> Shape | None:
        nodes = [node for node in nodes if node not in self._without]
        asked = self.keeper.wanted_ranks()
        wanted = self._sizes.own if asked is None else asked
        smallest = min(self._sizes.worlds)
        return self._sizes.fitting(nodes, at_most=max(wanted, smallest))
