"""Report of the processes of a gang: which failed though their rank did not, and of which nothing is known.

Processes report themselves (`train.startup.processes`) and their keeper adds what it sees, so it is evidence and no
proof against the author of a program.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

MOST_LISTED = 5
"""Entries of each kind; the reports of all processes fit into the termination message of a pod."""
_MOST_NAME, _MOST_WHAT, _MOST_SAID = 80, 100, 200


@dataclass(frozen=True, kw_only=True, slots=True)
class ProcessFailure:
    """A process that failed while the rank that it belongs to did not."""

    rank: int
    program: str
    """File name of its script or program, or its module: what `gate.may_fail` is compared with."""
    what: str
    """Its command, or its name and that of its program."""
    how: str
    """`code 3`, `signal 9`, `thread`: one of its threads ended; empty: by an exception."""
    said: str = ""
    """The exception, as the last line of a traceback; empty: none is known."""
    count: int = 1
    """Processes that failed alike."""

    @property
    def text(self) -> str:
        """`fit.py on rank 0 ended with code 1: ValueError: no rows`."""
        ended = {"code": "ended with", "signal": "ended by"}.get(self.how.partition(" ")[0])
        end = f"{ended} {self.how}" if ended else "ended by an exception"
        alike = f", as {self.count - 1} more did" if self.count > 1 else ""
        return f"{self.what} on rank {self.rank} {end}{alike}" + (f": {self.said}" if self.said else "")


@dataclass(frozen=True, kw_only=True, slots=True)
class UnseenProgram:
    """A program below which processes may have failed without a trace."""

    program: str
    why: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ProcessReport:
    """What is known of all processes of a gang, or of one node of it."""

    failed: tuple[ProcessFailure, ...] = ()
    """The first ones, at most `MOST_LISTED`."""
    num_failed: int = 0
    restarted: tuple[ProcessFailure, ...] = ()
    """Failed, and started again by torch.distributed.run; at most `MOST_LISTED`."""
    unseen: tuple[UnseenProgram, ...] = ()
    """Programs whose failures may be unseen; `MOST_LISTED` at most."""
    unwatched: tuple[int, ...] = ()
    """Ranks that are no Python that reports, and that started programs; at most `MOST_LISTED`."""
    pipefail: bool = False
    """The shell of `project.command` ran with `-o pipefail`."""


def join_process_reports(reports: Iterable[ProcessReport]) -> ProcessReport:
    """One report of several nodes, generations or gangs; failures that differ by their rank alone are counted."""
    every = tuple(reports)
    return ProcessReport(
        failed=_alike(failure for report in every for failure in report.failed),
        num_failed=sum(report.num_failed for report in every),
        restarted=_alike(failure for report in every for failure in report.restarted),
        unseen=tuple(dict.fromkeys(program for report in every for program in report.unseen))[:MOST_LISTED],
        unwatched=tuple(sorted({rank for report in every for rank in report.unwatched}))[:MOST_LISTED],
        pipefail=any(report.pipefail for report in every),
    )


def cut_failure(each: ProcessFailure) -> ProcessFailure:
    """`each` with texts of bounded length."""
    return replace(each, program=each.program[:_MOST_NAME], what=each.what[:_MOST_WHAT], said=each.said[:_MOST_SAID])


def _alike(failures: Iterable[ProcessFailure]) -> tuple[ProcessFailure, ...]:
    found: dict[tuple[str, str, str], ProcessFailure] = {}
    for failure in failures:
        key = failure.program, failure.how, failure.said
        process_failure = found.get(key)
        found[key] = (
            replace(process_failure, count=process_failure.count + failure.count) if process_failure else failure
        )
    return tuple(found.values())[:MOST_LISTED]
