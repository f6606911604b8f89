"""Generations of a gang as its leader controls them: which is next and why, and when one ends on all nodes."""

import time
from collections.abc import Sequence

from gangline.errors import SIGTERM_CODE
from gangline.keeper.coordination.protocol import CoordinationHost, GenerationStart
from gangline.keeper.coordination.reports import NodeReport, join_reports
from gangline.keeper.coordination.restart_policy import RestartBudget, RestartDecision, decide_restart
from gangline.keeper.coordination.world_size import GangShape, WorldSizes
from gangline.keeper.ranks.generation_result import GenerationResult, Halt, LostNode
from gangline.keeper.ranks.rank_exit import RankExit, classify, describe
from gangline.keeper.ranks.stop_request import StopRequest

DOUBT_SECONDS = 1.0
"""A node whose rank lost a peer waits so long for the news of which."""
SETTLE_SECONDS = 30.0
"""Beyond the grace, for a node to end its ranks and say so."""


class GenerationEnd:
    """Of one generation; nothing speaks against it at first."""

    def __init__(self) -> None:
        self._halt: Halt | None = None
        self._halt_at = 0.0
        self._told = False
        self._reports_by: float | None = None

    @property
    def is_called(self) -> bool:
        """Somewhere it is over, though not everybody has heard of it yet."""
        return self._halt is not None

    @property
    def is_late(self) -> bool:
        """Every node should have reported by now."""
        return self._reports_by is not None and time.monotonic() > self._reports_by

    @property
    def halt(self) -> Halt | None:
        """As all nodes may know it; None while it runs, or while there is doubt about who failed first."""
        return self._halt if self._halt and time.monotonic() >= self._halt_at else None

    def news(self) -> Halt | None:
        """`halt`, once."""
        if self._told or (halt := self.halt) is None:
            return None
        self._told = True
        return halt

    def call(self, halt: Halt, *, doubt: bool) -> None:
        """It is over; `doubt`: for want of a peer, of which others may know more."""
        at = time.monotonic() + (DOUBT_SECONDS if doubt else 0.0)
        self._halt_at = min(self._halt_at, at) if self._halt else at
        self._halt = Halt(hangs=halt.hangs or bool(self._halt and self._halt.hangs))
        self.allow(0.0)

    def allow(self, seconds: float) -> None:
        """Nodes that were asked to stop have so long for it."""
        self._reports_by = max(self._reports_by or 0.0, time.monotonic() + seconds + SETTLE_SECONDS)


class GenerationController:
    def __init__(self, keeper: CoordinationHost, *, max_events: int, sizes: WorldSizes, first: int = 0) -> None:
        """`max_events`: how often a gang may start anew for what it has to pay for; `first`: its first generation."""
        self.keeper = keeper
        self.budget = RestartBudget(max_events)
        self.generation = first
        """The next one, or the one that runs."""
        self.restarts = 0
        self.reason = ""
        self.began = 0.0
        """When the last generation was told to start, by this keeper's clock."""
        self.outcome: GenerationResult | None = None
        """How it ended, on all nodes."""
        self._sizes = sizes
        self._shape: GangShape | None = None
        self._without: dict[int, str] = {}
        """Nodes that are left out for good, with the reason."""
        self._answered = -1
        """Generation whose wish for that was answered."""

    def fits(self, nodes: Sequence[int]) -> bool:
        """A generation of `nodes` alone can go on."""
        return self._fitting(nodes) is not None

    def start(self, nodes: Sequence[int]) -> GenerationStart:
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
        return GenerationStart(
            generation=self.generation, port=port, shape=shape, restarts=self.restarts, reason=self.reason
        )

    def resize(self, nodes: Sequence[int]) -> StopRequest | None:
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
        return StopRequest(exit_code=SIGTERM_CODE, reason=why, save=True, resize=True)

    def judge(
        self, reports: Sequence[NodeReport], *, order: StopRequest | None = None, lost: LostNode | None = None
    ) -> RestartDecision:
        """What follows from how the generation ended; the budget is charged where that costs."""
        joined = join_reports(reports, began=self.began, order=order, lost=lost)
        self.outcome = outcome = joined.outcome
        death = outcome.lost or outcome.failed
        died = death.mono if death else time.monotonic()
        return decide_restart(outcome, self.budget, oom_kills=joined.oom_kills, now=died, word=joined.word)

    def go_on(self, verdict: RestartDecision) -> None:
        """To the next generation, after the pause that `verdict` wants."""
        self.generation += 1
        self.reason = verdict.reason
        if not verdict.resize:
            self.restarts += 1
            self.keeper.event("restart", reason=verdict.reason, charged=verdict.charged, generation=self.generation)
        self.keeper.waits(verdict.reason)
        patience = time.monotonic() + verdict.pause_seconds
        while time.monotonic() < patience and self.keeper.own_stop_request() is None:
            self.keeper.wait(patience - time.monotonic())

    def replace(self, dead: Sequence[RankExit], *, oom_kills: int) -> GenerationStart | None:
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
        return GenerationStart(
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

    def _fitting(self, nodes: Sequence[int]) -> GangShape | None:
        nodes = [node for node in nodes if node not in self._without]
        asked = self.keeper.wanted_ranks()
        wanted = self._sizes.own if asked is None else asked
        smallest = min(self._sizes.worlds)
        return self._sizes.fitting(nodes, at_most=max(wanted, smallest))
