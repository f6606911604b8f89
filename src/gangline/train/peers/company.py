"""What a keeper asks of its company, the keepers of the other nodes, and what that asks of a keeper."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from gangline.train.evict import Eviction
from gangline.train.exit_codes import RankExit
from gangline.train.outcome import Halt, Outcome
from gangline.train.peers.reports import Report
from gangline.train.peers.shape import Shape
from gangline.train.stop import StopOrder
from gangline.train.verdict import Verdict


@dataclass(frozen=True, kw_only=True, slots=True)
class Start:
    """Start the ranks of this generation now."""

    generation: int
    port: int
    """Of the rendezvous store."""
    shape: Shape | None = None
    """Who takes part; None: all nodes, each with the ranks it was made for."""
    restarts: int = 0
    reason: str = ""
    """Of the last restart."""


class Company(Protocol):
    @property
    def outcome(self) -> Outcome | None:
        """How the last generation ended on all nodes, where this keeper knows."""
        ...

    def next(self, last: Report | None) -> Start | Verdict:
        """What to do after the generation that ended with `last` (None: there was none); waits as long as it takes."""
        ...

    def order(self, own: StopOrder | None) -> StopOrder | None:
        """Who has to stop: this node's `own` order is told to the others, theirs comes back."""
        ...

    def halt(self) -> Halt | None:
        """The generation is over on another node."""
        ...

    def failing(self, *, secondary: bool, hangs: bool) -> None:
        """It is over on this node; `secondary`: for want of a peer."""
        ...

    def replace(self, dead: Sequence[RankExit], *, oom_kills: int) -> Start | None:
        """A generation in which the living stay and the `dead` are started again; None: it is over for all."""
        ...

    def pump(self) -> None:
        """Hear and answer the others; never waits."""
        ...

    def handles(self) -> list[int]:
        """File descriptors that become readable when there is news."""
        ...

    def close(self, verdict: Verdict) -> None:
        """The last word to the others."""
        ...


class Keeping(Protocol):
    """The keeper, as its company sees it."""

    def wait(self, seconds: float) -> None:
        """Sleep until there is news or so long; the company is pumped meanwhile."""
        ...

    def own_order(self) -> StopOrder | None:
        """This node was asked to stop."""
        ...

    def wanted_ranks(self) -> int | None:
        """Somebody asked for so many; None: nobody did."""
        ...

    def eviction(self, generation: int) -> Eviction | None:
        """A rank of this generation is slow, and its node is to be left out; None: nobody says so."""
        ...

    def open_store(self) -> int:
        """A fresh rendezvous store; its port."""
        ...

    def waits(self, reason: str) -> None:
        """No rank runs here now, because of `reason`."""
        ...

    def event(self, event: str, **values: object) -> None: ...
