"""The keeper, as a generation of its ranks uses it."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from gangline.keeper.ranks.generation_result import Halt
from gangline.keeper.ranks.rank_exit import RankExit
from gangline.keeper.ranks.rank_processes import RankStart
from gangline.keeper.ranks.stop_request import StopRequest
from gangline.keeper.ranks.watchdog import Hang
from gangline.spec.gang.status import GangState


class GenerationHost(Protocol):
    """The keeper, as a generation uses it."""

    def wait(self, seconds: float) -> None:
        """Sleep until an event of the keeper, for at most `seconds`."""
        ...

    def stop_request(self) -> StopRequest | None:
        """Request to end this generation, of this node or of the gang; None: there is none."""
        ...

    def remote_halt(self) -> Halt | None:
        """The generation ended on another node; None: it did not."""
        ...

    def replacements(self, dead: Sequence[RankExit], started: Mapping[int, float]) -> "Replacements | None":
        """Ranks to start in place of the `dead`, while the others stay; None: the generation ends for all."""
        ...

    def report_failure(self, failed: RankExit | None, hang: Hang | None) -> None:
        """Called before any process is ended here."""
        ...

    def own_pids(self) -> Collection[int]:
        """Child processes of the keeper that are not ranks."""
        ...

    def update_status(self, state: GangState, ranks: Mapping[int, int], joined: Sequence[int]) -> None:
        """Write the status of the node. `ranks`: pid by rank; `joined`: ranks that finished the rendezvous."""
        ...

    def event(self, event: str, **values: object) -> None:
        """Write an event to the keeper's journal."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Replacements:
    """Ranks of a new generation that start while the other ranks keep their processes."""

    generation: int
    """Its number, for all ranks."""
    starts: tuple[RankStart, ...]
