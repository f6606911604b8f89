"""Interface between a keeper and its coordinator, in both directions."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from gangline.keeper.coordination.reports import NodeReport
from gangline.keeper.coordination.restart_policy import RestartDecision
from gangline.keeper.coordination.world_size import GangShape
from gangline.keeper.ipc.requests import EvictionRequest
from gangline.keeper.ranks.generation_result import GenerationResult, Halt
from gangline.keeper.ranks.rank_exit import RankExit
from gangline.keeper.ranks.stop_request import StopRequest


@dataclass(frozen=True, kw_only=True, slots=True)
class GenerationStart:
    """Order to start the ranks of a generation."""

    generation: int
    port: int
    """Port of the rendezvous store."""
    shape: GangShape | None = None
    """Nodes that take part; None: all, each with its own number of ranks."""
    restarts: int = 0
    reason: str = ""
    """Why the last restart was made."""
    interruptions: int = 0
    """Restarts since this coordinator began, and"""
    elapsed_seconds: float = 0.0
    """the time since then: from both all ranks choose the same interval between saves."""


class Coordinator(Protocol):
    """Decides about generations, alone or with the keepers of other nodes."""

    @property
    def outcome(self) -> GenerationResult | None:
        """How the last generation ended on all nodes; None: this keeper does not know."""
        ...

    def next(self, last: NodeReport | None) -> GenerationStart | RestartDecision:
        """The next generation after the one that ended with `last` (None: there was none), or the end; may wait."""
        ...

    def exchange_stop(self, own: StopRequest | None) -> StopRequest | None:
        """Send this node's `own` stop request to the others; returns the one that applies to this node."""
        ...

    def remote_halt(self) -> Halt | None:
        """The generation ended on another node; None: it did not."""
        ...

    def report_failure(self, *, secondary: bool, hangs: bool) -> None:
        """Report that the generation ends on this node; `secondary`: because a peer was lost."""
        ...

    def replace(self, dead: Sequence[RankExit], *, oom_kills: int) -> GenerationStart | None:
        """Generation in which only the `dead` ranks are started again; None: the generation ends for all ranks."""
        ...

    def poll(self) -> None:
        """Handle messages of the other keepers; never waits."""
        ...

    def handles(self) -> list[int]:
        """File descriptors that become readable when `poll` has something to do."""
        ...

    def close(self, decision: RestartDecision) -> None:
        """Tell the others how the gang ends, and disconnect."""
        ...


class CoordinationHost(Protocol):
    """The keeper, as its coordinator uses it."""

    def wait(self, seconds: float) -> None:
        """Sleep until an event of the keeper, for at most `seconds`; polls the coordinator."""
        ...

    def own_stop_request(self) -> StopRequest | None:
        """Stop request to this node."""
        ...

    def wanted_ranks(self) -> int | None:
        """Requested number of ranks; None: no request."""
        ...

    def eviction(self, generation: int) -> EvictionRequest | None:
        """Request to leave out the node of a slow rank of this generation; None: no request."""
        ...

    def open_store(self) -> int:
        """Open a new rendezvous store; returns its port."""
        ...

    def set_waiting(self, reason: str) -> None:
        """Report that no rank runs on this node, because of `reason`."""
        ...

    def event(self, event: str, **values: object) -> None:
        """Write an event to the keeper's journal."""
        ...
