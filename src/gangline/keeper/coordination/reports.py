"""Reports of how a generation ended on one node, and the result of all nodes joined from them. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from gangline.keeper.ranks.generation_result import GenerationResult, LostNode
from gangline.keeper.ranks.rank_exit import RankExit, culprit
from gangline.keeper.ranks.stop_request import StopRequest
from gangline.keeper.ranks.watchdog import Hang
from gangline.spec.codec import from_plain, to_plain

LOG_LINES = 10
_LINE_CHARACTERS = 2000
_STACKS_CHARACTERS = 4096


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeReport:
    """Of one node."""

    generation: int
    exits: tuple[RankExit, ...] = ()
    failed: RankExit | None = None
    hang: Hang | None = None
    behind: Hang | None = None
    stacks: dict[str, str] = field(default_factory=dict)
    step: int | None = None
    progressed: bool = False
    ordered: bool = False
    """It ended because somebody was asked to stop."""
    oom_kills: int = 0
    """Processes of this node that were killed for memory meanwhile."""
    word: str = ""
    """What the failed rank itself said."""
    log: tuple[str, ...] = ()
    """Its last lines."""

    def to_plain(self) -> dict[str, Any]:
        plain: dict[str, Any] = to_plain(self)
        return plain

    @staticmethod
    def from_plain(plain: object) -> "NodeReport":
        """Raises `IntegrityError`."""
        return from_plain(NodeReport, plain)


@dataclass(frozen=True, kw_only=True, slots=True)
class GangReport:
    """All nodes' reports as one."""

    outcome: GenerationResult
    """Times are of the leader's clock."""
    oom_kills: int
    word: str


def report_of(
    outcome: GenerationResult, *, generation: int, began: float, oom_kills: int, word: str, log: Sequence[str]
) -> NodeReport:
    """`outcome` of one node for others; `began` is the time by its clock when it was told to start."""
    return NodeReport(
        generation=generation,
        exits=tuple(_shifted(each, -began) for each in outcome.exits),
        failed=_shifted(outcome.failed, -began) if outcome.failed else None,
        hang=outcome.hang,
        behind=outcome.behind,
        stacks={rank: text[:_STACKS_CHARACTERS] for rank, text in outcome.stacks.items()},
        step=outcome.step,
        progressed=outcome.progressed,
        ordered=outcome.order is not None,
        oom_kills=oom_kills,
        word=word[:_LINE_CHARACTERS],
        log=tuple(line[:_LINE_CHARACTERS] for line in log[-LOG_LINES:]),
    )


def join_reports(
    reports: Sequence[NodeReport], *, began: float, order: StopRequest | None, lost: LostNode | None = None
) -> GangReport:
    """One outcome of the nodes that reported; who failed first speaks, whatever the order of `reports`.

    Args:
        reports: At least one.
        began: When the generation began, by the leader's clock.
        order: That ended it.
        lost: The node that went away first.
    """
    exits = sorted((each for report in reports for each in report.exits), key=lambda each: each.mono)
    failed = culprit(sorted((each.failed for each in reports if each.failed), key=lambda each: each.mono))
    speaker = next((each for each in reports if failed is not None and each.failed == failed), reports[0])
    lost = lost if lost is not None and _is_cause(lost, failed, began) else None
    stopped = order is not None
    steps = [each.step for each in reports]
    outcome = GenerationResult(
        exits=tuple(_shifted(each, began) for each in exits),
        failed=_shifted(failed, began) if failed and not stopped else None,
        hang=None if stopped else _furthest_behind(reports),
        stacks={rank: text for each in reports for rank, text in each.stacks.items()},
        order=order,
        started={},
        step=min((each for each in steps if each is not None), default=None) if None not in steps else None,
        progressed=any(each.progressed for each in reports),
        lost=None if stopped else lost,
        log=speaker.log,
    )
    return GangReport(outcome=outcome, oom_kills=speaker.oom_kills, word=speaker.word)


def _is_cause(lost: LostNode, failed: RankExit | None, began: float) -> bool:
    """A node that went away explains the deaths that came after it, and all that lost a peer."""
    return failed is None or failed.is_secondary or lost.mono - began <= failed.mono


def _furthest_behind(reports: Sequence[NodeReport]) -> Hang | None:
    """Where one node hangs, all were asked how far they are."""
    if not any(each.hang for each in reports):
        return None
    return min((each.behind or each.hang for each in reports if each.behind or each.hang), key=_progress)


def _progress(hang: Hang | None) -> tuple[int, bool, float]:
    assert hang is not None, "left out before"
    return hang.progress


def _shifted(each: RankExit, seconds: float) -> RankExit:
    return replace(each, mono=each.mono + seconds)
