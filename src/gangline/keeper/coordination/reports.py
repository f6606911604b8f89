"""Reports of how a generation ended on one node, and the result of all nodes joined from them. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from gangline.keeper.ranks.generation_result import GenerationResult, LostNode
from gangline.keeper.ranks.rank_exit import RankExit, culprit
from gangline.keeper.ranks.rank_processes import MOST_LEFTOVERS
from gangline.keeper.ranks.stop_request import StopRequest
from gangline.keeper.ranks.watchdog import Hang
from gangline.spec.codec import from_plain, to_plain
from gangline.spec.processes import ProcessReport, join_process_reports

LOG_LINES = 10
_LINE_CHARACTERS = 2000
_STACKS_CHARACTERS = 4096


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeReport:
    """How a generation ended on one node."""

    generation: int
    exits: tuple[RankExit, ...] = ()
    failed: RankExit | None = None
    hang: Hang | None = None
    behind: Hang | None = None
    stacks: dict[str, str] = field(default_factory=dict)
    step: int | None = None
    progressed: bool = False
    stopped: bool = False
    """It ended because of a stop request."""
    saved_step: int | None = None
    """Same as that of `GenerationResult`."""
    oom_kills: int = 0
    """Processes of this node that were killed for memory during the generation."""
    rank_reason: str = ""
    """Reason that the failed rank itself gave."""
    log: tuple[str, ...] = ()
    """Last log lines of the failed rank."""
    leftovers: tuple[str, ...] = ()
    """Commands of processes that were still running after all ranks had ended well."""
    processes: ProcessReport | None = None
    """Report of all generations up to this one; None: it is not known."""

    def to_plain(self) -> dict[str, Any]:
        """The report in values of JSON, for a message between keepers."""
        plain: dict[str, Any] = to_plain(self)
        return plain

    @staticmethod
    def from_plain(plain: object) -> "NodeReport":
        """Raises `IntegrityError`."""
        return from_plain(NodeReport, plain)


@dataclass(frozen=True, kw_only=True, slots=True)
class GangReport:
    """How a generation ended on all nodes."""

    outcome: GenerationResult
    """Times are of the leader's clock."""
    oom_kills: int
    rank_reason: str


def report_of(
    outcome: GenerationResult, *, generation: int, began: float, oom_kills: int, rank_reason: str, log: Sequence[str]
) -> NodeReport:
    """Report of `outcome` on one node; `began`: start of the generation by the clock of that node."""
    return NodeReport(
        generation=generation,
        exits=tuple(_shifted(rank_exit, -began) for rank_exit in outcome.exits),
        failed=_shifted(outcome.failed, -began) if outcome.failed else None,
        hang=outcome.hang,
        behind=outcome.behind,
        stacks={rank: text[:_STACKS_CHARACTERS] for rank, text in outcome.stacks.items()},
        step=outcome.step,
        progressed=outcome.progressed,
        stopped=outcome.stop is not None,
        saved_step=outcome.saved_step,
        oom_kills=oom_kills,
        rank_reason=rank_reason[:_LINE_CHARACTERS],
        log=tuple(line[:_LINE_CHARACTERS] for line in log[-LOG_LINES:]),
        leftovers=outcome.leftovers,
        processes=outcome.processes,
    )


def join_reports(
    reports: Sequence[NodeReport], *, began: float, stop: StopRequest | None, lost: LostNode | None = None
) -> GangReport:
    """Outcome of all nodes that reported; the first failure decides, whatever the order of `reports`.

    Args:
        reports: At least one.
        began: When the generation began, by the leader's clock.
        stop: Request that ended it.
        lost: The node that was lost first.
    """
    exits = sorted(
        (rank_exit for report in reports for rank_exit in report.exits), key=lambda rank_exit: rank_exit.mono
    )
    failed = culprit(
        sorted((report.failed for report in reports if report.failed), key=lambda rank_exit: rank_exit.mono)
    )
    source = next((report for report in reports if failed is not None and report.failed == failed), reports[0])
    lost = lost if lost is not None and _is_cause(lost, failed, began) else None
    stopped = stop is not None
    steps = [report.step for report in reports]
    outcome = GenerationResult(
        exits=tuple(_shifted(rank_exit, began) for rank_exit in exits),
        failed=_shifted(failed, began) if failed and not stopped else None,
        hang=None if stopped else _furthest_behind(reports),
        stacks={rank: text for report in reports for rank, text in report.stacks.items()},
        stop=stop,
        started={},
        step=min((step for step in steps if step is not None), default=None) if None not in steps else None,
        progressed=any(report.progressed for report in reports),
        saved_step=max((report.saved_step for report in reports if report.saved_step is not None), default=None),
        lost=None if stopped else lost,
        log=source.log,
        leftovers=tuple(command for report in reports for command in report.leftovers)[:MOST_LEFTOVERS],
        processes=_processes(reports),
    )
    return GangReport(outcome=outcome, oom_kills=source.oom_kills, rank_reason=source.rank_reason)


def _processes(reports: Sequence[NodeReport]) -> ProcessReport | None:
    process_reports = [report.processes for report in reports if report.processes is not None]
    return join_process_reports(process_reports) if len(process_reports) == len(reports) else None


def _is_cause(lost: LostNode, failed: RankExit | None, began: float) -> bool:
    """The lost node explains failures after its loss, and failures of ranks that lost a peer."""
    return failed is None or failed.is_secondary or lost.mono - began <= failed.mono


def _furthest_behind(reports: Sequence[NodeReport]) -> Hang | None:
    """The rank furthest behind on all nodes; None: no node hangs."""
    if not any(report.hang for report in reports):
        return None
    return min((report.behind or report.hang for report in reports if report.behind or report.hang), key=_progress)


def _progress(hang: Hang | None) -> tuple[bool, int, bool, float]:
    assert hang is not None, "the caller left it out"
    return hang.progress


def _shifted(each: RankExit, seconds: float) -> RankExit:
    return replace(each, mono=each.mono + seconds)
