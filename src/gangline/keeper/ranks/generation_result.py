"""Result of a generation: of the ranks of one node, or of all nodes (`coordination.reports` joins them)."""

from dataclasses import dataclass

from gangline.keeper.ranks.rank_exit import RankExit
from gangline.keeper.ranks.stop_request import StopRequest
from gangline.keeper.ranks.watchdog import Hang
from gangline.spec.processes import ProcessReport

CULPRIT_SECONDS = 1.0
"""Wait for the first failure while only ranks that lost a peer have ended, on a node and on all nodes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LostNode:
    """A node whose keeper was lost."""

    rank: int
    """First rank of the node."""
    reason: str
    mono: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Halt:
    """The generation ended on another node."""

    hangs: bool = False
    """It hung: the stacks of the ranks are collected."""


@dataclass(frozen=True, kw_only=True, slots=True)
class GenerationResult:
    """How a generation ended, on one node or on all."""

    exits: tuple[RankExit, ...]
    """Exits in the order they were seen."""
    failed: RankExit | None
    """The rank that failed first; None: none failed, the generation hung or was asked to stop."""
    hang: Hang | None
    stacks: dict[str, str]
    stop: StopRequest | None
    started: dict[int, float]
    step: int | None
    """Last step that all ranks finished."""
    progressed: bool
    """One rank or more finished a step."""
    saved_step: int | None = None
    """Step of the newest save that rank 0 reported after a stop request, 0: there is none. None: not known."""
    behind: Hang | None = None
    """The rank furthest behind when the generation hung on this or another node."""
    lost: LostNode | None = None
    """The node that was lost."""
    log: tuple[str, ...] = ()
    """Last log lines of the failed rank."""
    leftovers: tuple[str, ...] = ()
    """Commands of processes that were still running, and were stopped, after all ranks had ended well."""
    processes: ProcessReport | None = None
    """Report of all generations up to this one; None: a node did not report."""
