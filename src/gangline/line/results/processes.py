"""Processes of a run's gangs: the report of their keepers, read within bounds, and the gate on it."""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import PurePosixPath

from gangline.errors import IntegrityError
from gangline.git.bounded_process import OutputTooLarge
from gangline.line.gangs.attempts import FinishedGang
from gangline.line.record.context import RunContext
from gangline.sanitize import clean
from gangline.spec.codec import from_plain
from gangline.spec.gang.status import GangEnd
from gangline.spec.measurements import Answer
from gangline.spec.processes import (
    MOST_LISTED,
    ProcessFailure,
    ProcessReport,
    UnseenProgram,
    cut_failure,
    join_process_reports,
)
from gangline.spec.record import Gate, Record
from gangline.train.startup.processes import own_program
from gangline.train.startup.programs import TOOLS
from gangline.train.startup.shells import MOST_SCRIPT_BYTES, loses_failures, read_call, script_call
from gangline.train.startup.started import FORWARD, LOSES

GATE = "processes"
_UNWATCHED = "it is no Python that reports, and a failure of what it started is not seen"
_COUNT = 10**6


def read_processes(ctx: RunContext, *gangs: FinishedGang) -> ProcessReport | None:
    """Report of all attempts of some gangs that ended well; None: the last attempt of one did not report."""
    reports = []
    for gang in gangs:
        last = _of_end(gang.end)
        if last is None:
            return None
        reports += [*filter(None, map(_of_end, gang.earlier)), last]
    return _with_leader(ctx, join_process_reports(reports))


def with_processes(ctx: RunContext, record: Record, *gangs: FinishedGang) -> ProcessReport | None:
    """The run's report with the gangs of another stage added."""
    return joined_reports(record.processes, read_processes(ctx, *gangs)) if gangs else record.processes


def joined_reports(*reports: ProcessReport | None) -> ProcessReport | None:
    """One report of all; None where one is missing."""
    process_reports = [report for report in dict.fromkeys(reports) if report is not None]
    return join_process_reports(process_reports) if None not in reports else None


def record_failed_processes(ctx: RunContext, report: ProcessReport | None) -> None:
    """Note each failure that counts, for people."""
    for failure in _counted(report, ctx.line.gate.may_fail) if report is not None else ():
        ctx.record_event("train", "program", f"{failure.text}; the rank ended with 0")


def judge_processes(report: ProcessReport | None, may_fail: Sequence[str]) -> Gate:
    """No: a process failed and its rank did not. Unknown: processes may have failed of which nothing is known."""
    if report is None:
        return _gate("unknown", "its gang did not report how its processes ended; gangline run --again trains again")
    counted = _counted(report, may_fail)
    unlisted = report.num_failed - sum(failure.count for failure in report.failed)
    if counted:
        more = f"; {unlisted + len(counted) - 1} more failed" if unlisted + len(counted) > 1 else ""
        names = ", ".join(dict.fromkeys(f'"{failure.program}"' for failure in counted))
        advice = f"if the program handles that, gate.may_fail = [{names}] says so"
        return _gate("no", f"{counted[0].text}; the rank ended with 0{more}; {advice}")
    unseen = [program for program in report.unseen if not _is_named(program.program, may_fail)]
    if unlisted > 0 or unseen:
        said = [f"{program.program}: {program.why}" if program.program else program.why for program in unseen]
        said += [f"{unlisted} processes failed that are not listed"] if unlisted > 0 else []
        names = ", ".join(dict.fromkeys(f'"{program.program}"' for program in unseen if program.program))
        advice = f"; gate.may_fail = [{names}] accepts that" if names else ""
        return _gate("unknown", "; ".join(said) + advice)
    return _gate("yes", "; ".join(_details(report)))


def _counted(report: ProcessReport, may_fail: Sequence[str]) -> list[ProcessFailure]:
    """Failures that are not excused; an orphan may be a tool, which its keeper does not know."""
    return [
        failure
        for failure in report.failed
        if not TOOLS.fullmatch(failure.program) and not _is_named(failure.program, may_fail)
    ]


def _details(report: ProcessReport) -> Iterator[str]:
    excused = sum(failure.count for failure in report.failed)
    yield "no process failed" if not excused else f"no process failed but those that may: {report.failed[0].text}"
    if report.restarted:
        yield f"torch.distributed.run started again what had failed: {report.restarted[0].text}"
    if report.pipefail:
        yield "the shell of project.command ran with -o pipefail"


def _of_end(end: GangEnd) -> ProcessReport | None:
    """The report that an end holds; None: there is none, or it is not valid."""
    try:
        report = from_plain(ProcessReport, end.evidence.get(GATE))
    except IntegrityError:
        return None
    return replace(
        report,
        failed=tuple(map(_cleaned, report.failed[:MOST_LISTED])),
        num_failed=min(max(report.num_failed, len(report.failed)), _COUNT),
        restarted=tuple(map(_cleaned, report.restarted[:MOST_LISTED])),
        unseen=tuple(
            UnseenProgram(program=clean(program.program, limit=80), why=clean(program.why, limit=200))
            for program in report.unseen[:MOST_LISTED]
        ),
        unwatched=report.unwatched[:MOST_LISTED],
    )


def _cleaned(each: ProcessFailure) -> ProcessFailure:
    texts = (each.program, each.what, each.how, each.said)
    program, what, how, said = (clean(text, limit=200) for text in texts)
    count = min(max(each.count, 1), _COUNT)
    return cut_failure(replace(each, program=program, what=what, how=how, said=said, count=count))


def _with_leader(ctx: RunContext, report: ProcessReport) -> ProcessReport:
    """`report` with what the command of the line hides, in place of the ranks that were not watched."""
    command = ctx.line.project.command or ()

    def read_committed(path: str) -> str | None:
        name = os.path.normpath(path)
        try:
            data = ctx.repository.file(ctx.record.commit.tree, name, most_bytes=MOST_SCRIPT_BYTES)
        except OutputTooLarge:
            return None
        return data.decode(errors="replace") if data is not None else None

    unseen = unseen_of_command(command, read_committed, pipefail=report.pipefail, is_watched=not report.unwatched)
    return replace(report, unseen=(*unseen, *report.unseen)[:MOST_LISTED], unwatched=())


def unseen_of_command(
    command: Sequence[str], read: Callable[[str], str | None], *, pipefail: bool, is_watched: bool
) -> tuple[UnseenProgram, ...]:
    """What a rank that runs `command` may hide.

    Args:
        command: `project.command`; empty: the ranks run a task.
        read: Text of a file of the commit, None where there is none.
        pipefail: The keeper added `-o pipefail`.
        is_watched: The rank reported, or started nothing.
    """
    call = read_call(command) or (script_call(command[0], read) if command else None)
    if call is not None:
        whole = call._replace(pipefail=call.pipefail or pipefail)
        name = PurePosixPath(call.script or command[0]).name
        return (UnseenProgram(program=name, why=LOSES),) if loses_failures(whole, tools=TOOLS, read=read) else ()
    name = PurePosixPath(command[0]).name if command else "task"
    name = own_program(list(command)) if name.startswith("python") else name
    return () if is_watched or name in FORWARD else (UnseenProgram(program=name, why=_UNWATCHED),)


def _is_named(program: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(program, pattern) for pattern in patterns)


def _gate(verdict: Answer, reason: str) -> Gate:
    return Gate(name=GATE, verdict=verdict, reason=reason)
