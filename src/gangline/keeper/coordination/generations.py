"""Generations of a gang: which one is next and why, and when one ends on all nodes."""

import time
from collections.abc import Sequence

from gangline.errors import SIGTERM_CODE
from gangline.keeper.coordination.protocol import CoordinationHost, GenerationStart
from gangline.keeper.coordination.reports import NodeReport, join_reports
from gangline.keeper.coordination.restart_policy import RestartBudget, RestartDecision, decide_restart
from gangline.keeper.coordination.world_size import GangShape, WorldSizes
from gangline.keeper.ranks.generation_result import CULPRIT_SECONDS, GenerationResult, Halt, LostNode
from gangline.keeper.ranks.rank_exit import RankExit, classify, describe
from gangline.keeper.ranks.stop_request import StopRequest

SETTLE_SECONDS = 30.0
"""Time for a node to end its ranks and report, beyond the grace period."""


class GenerationEnd:
    """End of one generation on all nodes: whether it was announced, and when all nodes have to report."""

    def __init__(self) -> None:
        self._halt: Halt | None = None
        self._halt_at = 0.0
        self._was_taken = False
        self._reports_by: float | None = None

    @property
    def is_announced(self) -> bool:
        """The generation ended on a node, though not all nodes know it yet."""
        return self._halt is not None

    @property
    def is_late(self) -> bool:
        """The time for reports is over."""
        return self._reports_by is not None and time.monotonic() > self._reports_by

    @property
    def halt(self) -> Halt | None:
        """The halt to send to all nodes; None while the generation runs, or while the first failure may be unknown."""
        return self._halt if self._halt and time.monotonic() >= self._halt_at else None

    def take_halt(self) -> Halt | None:
        """`halt`, returned once."""
        if self._was_taken or (halt := self.halt) is None:
            return None
        self._was_taken = True
        return halt

    def announce(self, halt: Halt, *, secondary: bool) -> None:
        """The generation ended on a node; `secondary`: because of a lost peer, so another node may report the cause."""
        at = time.monotonic() + (CULPRIT_SECONDS if secondary else 0.0)
        self._halt_at = min(self._halt_at, at) if self._halt else at
        self._halt = Halt(hangs=halt.hangs or bool(self._halt and self._halt.hangs))
        self.extend(0.0)

    def extend(self, seconds: float) -> None:
        """Give nodes `seconds` to stop before they have to report."""
        self._reports_by = max(self._reports_by or 0.0, time.monotonic() + seconds + SETTLE_SECONDS)


class GenerationController:
    """Chooses generations of a gang within its restart budget and the sizes of its plan."""

    def __init__(self, keeper: CoordinationHost, *, max_events: int, sizes: WorldSizes, first: int = 0) -> None:
        """`max_events`: restarts that the budget allows; `first`: number of the first generation."""
        self.keeper = keeper
        self.budget = RestartBudget(max_events)
        self.generation = first
        """Number of the current or the next one."""
        self.restarts = 0
        self.reason = ""
        self.began = 0.0
        """Start of the last generation, by this keeper's clock."""
        self.outcome: GenerationResult | None = None
        """How the last generation ended on all nodes."""
        self._sizes = sizes
        self._shape: GangShape | None = None
        self._since: tuple[float, int] | None = None
        """When the first generation of this controller began, and the restarts before it."""
        self._evicted: dict[int, str] = {}
        """Nodes that are left out for the rest of the gang, with the reason."""
        self._handled = -1
        """Generation whose eviction request was handled."""

    def fits(self, nodes: Sequence[int]) -> bool:
        """The plan has a size for a generation of `nodes`."""
        return self._largest_shape(nodes) is not None

    def start(self, nodes: Sequence[int]) -> GenerationStart:
        """The next generation, on all or some of the `nodes` that are present."""
        shape, before = self._largest_shape(nodes), self._shape
        assert shape is not None, "the caller has asked whether it fits"
        if before is not None and before.world_size != shape.world_size:
            reason = f"from {before.world_size} to {shape.world_size} ranks: {self.reason}"
            self.keeper.event(
                "resized", before=before.world_size, after=shape.world_size, generation=self.generation, reason=reason
            )
        self._shape = shape
        port = self.keeper.open_store()
        self.began = time.monotonic()
        self._since = self._since or (self.began, self.restarts)
        return GenerationStart(
            generation=self.generation, port=port, shape=shape, restarts=self.restarts, reason=self.reason,
            interruptions=self.restarts - self._since[1], elapsed_seconds=self.began - self._since[0],
        )  # fmt: skip

    def resize(self, nodes: Sequence[int]) -> StopRequest | None:
        """Stop request for a generation of another size, if the `nodes` that are present allow it; None: no change."""
        self._handle_eviction(nodes)
        wanted, now = self._largest_shape(nodes), self._shape
        if wanted is None or now is None:
            return None
        slow = [self._evicted[node] for node in now.nodes if node in self._evicted]
        if wanted.world_size == now.world_size and not slow:
            return None
        requested = self.keeper.wanted_ranks()
        why = f"{requested} ranks were requested" if requested is not None else f"{len(nodes)} nodes are present"
        why = slow[0] if slow else why
        return StopRequest(exit_code=SIGTERM_CODE, reason=why, save=True, resize=True)

    def decide(
        self, reports: Sequence[NodeReport], *, stop: StopRequest | None = None, lost: LostNode | None = None
    ) -> RestartDecision:
        """Decision after a generation; charges the budget for a restart that costs."""
        joined = join_reports(reports, began=self.began, stop=stop, lost=lost)
        self.outcome = outcome = joined.outcome
        death = outcome.lost or outcome.failed
        died = death.mono if death else time.monotonic()
        return decide_restart(
            outcome, self.budget, oom_kills=joined.oom_kills, now=died, rank_reason=joined.rank_reason
        )

    def advance(self, decision: RestartDecision) -> None:
        """Go to the next generation, after the pause of `decision`."""
        self.generation += 1
        self.reason = decision.reason
        if not decision.resize:
            self.restarts += 1
            self.keeper.event("restart", reason=decision.reason, charged=decision.charged, generation=self.generation)
        self.keeper.set_waiting(decision.reason)
        deadline = time.monotonic() + decision.pause_seconds
        while time.monotonic() < deadline and self.keeper.own_stop_request() is None:
            self.keeper.wait(deadline - time.monotonic())

    def replace(self, dead: Sequence[RankExit], *, oom_kills: int) -> GenerationStart | None:
        """Generation in which only the `dead` ranks start again; charged like a restart. None: it is not allowed."""
        retries = {classify(rank_exit, oom_kills=oom_kills)[1] for rank_exit in dead}
        if not retries <= {"free", "same"} or any(rank_exit.left for rank_exit in dead):
            return None
        answer = self.budget.charge(max(rank_exit.mono for rank_exit in dead))
        if answer == "refused":
            return None
        self.generation += 1
        self.restarts += 1
        self.reason = "; ".join(describe(rank_exit) for rank_exit in dead) + ": only these ranks start again"
        self.keeper.event(
            "replaced", ranks=[rank_exit.rank for rank_exit in dead], reason=self.reason, charged=answer == "charged",
            generation=self.generation,
        )  # fmt: skip
        port = self.keeper.open_store()
        return GenerationStart(
            generation=self.generation, port=port, shape=self._shape, restarts=self.restarts, reason=self.reason
        )

    def _handle_eviction(self, nodes: Sequence[int]) -> None:
        """Handle a request to evict a slow node: the gang continues without it if its plan has a size for that."""
        now, request = self._shape, self.keeper.eviction(self.generation)
        if request is None or now is None or self._handled == self.generation:
            return
        self._handled = self.generation
        node = now.nodes[request.rank // now.per_node]
        rest = [each for each in nodes if each != node]
        if node == 0 or self._largest_shape(rest) is None:
            why = "it leads the gang" if node == 0 else f"the plan has no size for {len(rest)} nodes"
            self.keeper.event("not_evicted", node=node, rank=request.rank, generation=self.generation, reason=why)
            return
        self._evicted[node] = f"node {node} is left out: {request.reason}"
        self.keeper.event("evicted", node=node, rank=request.rank, generation=self.generation, reason=request.reason)

    def _largest_shape(self, nodes: Sequence[int]) -> GangShape | None:
        nodes = [node for node in nodes if node not in self._evicted]
        requested = self.keeper.wanted_ranks()
        wanted = self._sizes.own if requested is None else requested
        smallest = min(self._sizes.worlds)
        return self._sizes.fitting(nodes, at_most=max(wanted, smallest))
