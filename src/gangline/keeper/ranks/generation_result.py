"""Result of a generation: of one node's ranks, or of all nodes' as `coordination.reports` joins them."""

from dataclasses import dataclass

from gangline.keeper.ranks.rank_exit import RankExit
from gangline.keeper.ranks.stop_request import StopRequest
from gangline.keeper.ranks.watchdog import Hang


@dataclass(frozen=True, kw_only=True, slots=True)
class LostNode:
    rank: int
    """Its first one."""
    reason: str
    mono: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Halt:
    """This generation is over on another node."""

    hangs: bool = False
    """It hung: where ranks stand is of interest."""


@dataclass(frozen=True, kw_only=True, slots=True)
class GenerationResult:
    """How a generation ended."""

    exits: tuple[RankExit, ...]
    """In the order they were seen."""
    failed: RankExit | None
    """Who failed first; None: nobody did, it hung or was asked to stop."""
    hang: Hang | None
    stacks: dict[str, str]
    order: StopRequest | None
    started: dict[int, float]
    step: int | None
    """Last step that all ranks had finished."""
    progressed: bool
    """Some rank finished a step."""
    behind: Hang | None = None
    """Who was furthest behind when it hung, here or elsewhere."""
    lost: LostNode | None = None
    """The node that went away."""
    log: tuple[str, ...] = ()
    """Last lines of who failed."""
