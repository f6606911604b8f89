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
    """Start the ranks of this generation now."""

    generation: int
    port: int
    """Of the rendezvous store."""
    shape: GangShape | None = None
    """Who takes part; None: all nodes, each with the ranks it was made for."""
    restarts: int = 0
    reason: str = ""
    """Of the last restart."""


class Coordinator(Protocol):
    @property
    def outcome(self) -> GenerationResult | None:
        """How the last generation ended on all nodes, where this keeper knows."""
        ...

    def next(self, last: NodeReport | None) -> GenerationStart | RestartDecision:
        """What to do after the generation that ended with `last` (None: there was none); waits as long as it takes."""
        ...

    def order(self, own: StopRequest | None) -> StopRequest | None:
        """Who has to stop: this node's `own` order is told to the others, theirs comes back."""
        ...

    def halt(self) -> Halt | None:
        """The generation is over on another node."""
        ...

    def failing(self, *, secondary: bool, hangs: bool) -> None:
        """It is over on this node; `secondary`: for want of a peer."""
        ...

    def replace(self, dead: Sequence[RankExit], *, oom_kills: int) -> GenerationStart | None:
        """A generation in which the living stay and the `dead` are started again; None: it is over for all."""
        ...

    def pump(self) -> None:
        """Hear and answer the others; never waits."""
        ...

    def handles(self) -> list[int]:
        """File descriptors that become readable when there is news."""
        ...

    def close(self, verdict: RestartDecision) -> None:
        """The last word to the others."""
        ...


class CoordinationHost(Protocol):
    """The keeper, as its company sees it."""

    def wait(self, seconds: float) -> None:
        """Sleep until there is news or so long; the company is pumped meanwhile."""
        ...

    def own_stop_request(self) -> StopRequest | None:
        """This node was asked to stop."""
        ...

    def wanted_ranks(self) -> int | None:
        """Somebody asked for so many; None: nobody did."""
        ...

    def eviction(self, generation: int) -> EvictionRequest | None:
        """A rank of this generation is slow, and its node is to be left out; None: nobody says so."""
        ...

    def open_store(self) -> int:
        """A fresh rendezvous store; its port."""
        ...

    def waits(self, reason: str) -> None:
        """No rank runs here now, because of `reason`."""
        ...

    def event(self, event: str, **values: object) -> None: ...
