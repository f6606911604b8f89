"""Which processes of a rank failed, from the lines that they report (`train.startup.processes`). Pure.

The failure of a process is taken if the process that started it fails, too: then only the latter counts, up to the
rank itself, whose failure fails the gang.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gangline.spec.processes import ProcessFailure, UnseenProgram, cut_failure

_VANISHED = "it ended without a report: by a signal, or by native code"


@dataclass(slots=True)
class _Failure:
    pid: int
    parent: int
    group: int
    mono: float
    failure: ProcessFailure


class ProcessTree:
    """Processes of one rank in one generation."""

    def __init__(self, rank: int, leader: int, lines: Iterable[Mapping[str, Any]]) -> None:
        """`leader`: process of the rank itself; `lines` in the order in which they were written."""
        self.rank, self._leader = rank, leader
        self._failures: list[_Failure] = []
        self._excused: set[int] = set()
        """Processes, and groups as negative numbers."""
        self._restarts: dict[int, float] = {}
        """Time of the last restart of workers by their parent."""
        self._open: dict[int, tuple[int, str]] = {}
        """Group and program of processes that no Python waits for, and that have not said that they ended."""
        self._began: set[int] = set()
        self.unseen: list[UnseenProgram] = []
        self.ended: float | None = None
        """When the rank came to its end by itself; None: it did not, or does not report."""
        unmatched: dict[int, _Failure] = {}
        for line in lines:
            self._take(line, unmatched)

    @property
    def is_watched(self) -> bool:
        """The rank is a Python that reports."""
        return self._leader in self._began

    def failures(self, *, before: float) -> list[ProcessFailure]:
        """Failures that no other failure took, by time."""
        return [failure.failure for failure in self._untaken(before) if not self._was_restarted(failure)]

    def restarted(self, *, before: float) -> list[ProcessFailure]:
        """Failed workers that were started again."""
        return [failure.failure for failure in self._untaken(before) if self._was_restarted(failure)]

    def first_failure(self, *, since: float) -> ProcessFailure | None:
        """The process that failed first, taken or not; None: none did but the rank itself."""
        failures = (
            failure for failure in self._failures
            if failure.pid != self._leader and failure.mono >= since
            and not self._is_excused(failure.pid, failure.group)
        )  # fmt: skip
        first = min(failures, key=lambda failure: failure.mono, default=None)
        return first.failure if first else None

    def vanished(self, is_alive: Callable[[int], bool]) -> Iterator[UnseenProgram]:
        """Processes that have ended and did not say how, of those that no Python waits for."""
        known = {failure.pid for failure in self._failures} | {self._leader}
        for pid, (group, program) in self._open.items():
            if pid not in known and not self._is_excused(pid, group) and not is_alive(pid):
                yield UnseenProgram(program=program, why=_VANISHED)

    def add_orphan(self, pid: int, name: str, how: str, mono: float) -> None:
        """A process that the keeper inherited has ended; `how` is empty for 0."""
        self._open.pop(pid, None)
        known = next((each for each in self._failures if each.pid == pid), None)
        if known is None and how:
            failure = ProcessFailure(rank=self.rank, program=name, what=name, how=how)
            self._failures.append(_Failure(pid, 0, 0, mono, failure))

    def knows(self, pid: int) -> bool:
        """Process `pid` reported."""
        return pid in self._began or any(failure.pid == pid for failure in self._failures)

    def _take(self, line: Mapping[str, Any], unmatched: dict[int, _Failure]) -> None:
        pid, mono = _number(line.get("pid")), line.get("mono")
        mono = mono if isinstance(mono, float) else 0.0
        match line.get("event"):
            case "began":
                self._began.add(pid)
                self._open[pid] = _number(line.get("group")), _text(line.get("program"))
            case "ended":
                self._open.pop(pid, None)
                self.ended = mono if pid == self._leader else self.ended
            case "excused":
                group = _number(line.get("group"))
                self._excused.add(-group if group else pid)
            case "restarted":
                self._restarts[_number(line.get("parent"))] = mono
            case "unseen":
                self.unseen.append(UnseenProgram(program=_text(line.get("program")), why=_text(line.get("why"))))
            case "failed":
                failure = self._failure(line, pid, mono)
                self._failures.append(failure)
                if pid:  # else a thread of its parent
                    unmatched[pid] = failure
            case "child":
                self._take_status(line, pid, mono, unmatched)

    def _take_status(self, line: Mapping[str, Any], pid: int, mono: float, unmatched: dict[int, _Failure]) -> None:
        """Take how a process ended, as the one that waited for it saw; it may have reported before why."""
        if not pid:  # the shell of os.system, which had the program as its child
            program = _text(line.get("program"))
            pid = next((each.pid for each in unmatched.values() if each.failure.program == program), 0)
        failure = unmatched.pop(pid, None)
        if failure is None:
            self._failures.append(self._failure(line, pid, mono))
        else:
            failure.failure = replace(failure.failure, how=_text(line.get("how")))

    def _failure(self, line: Mapping[str, Any], pid: int, mono: float) -> _Failure:
        failure = ProcessFailure(
            rank=self.rank, program=_text(line.get("program")), what=_text(line.get("what")),
            how=_text(line.get("how")), said=_text(line.get("said")),
        )  # fmt: skip
        return _Failure(pid, _number(line.get("parent")), _number(line.get("group")), mono, cut_failure(failure))

    def _untaken(self, before: float) -> Sequence[_Failure]:
        counted = [
            each for each in self._failures
            if each.pid != self._leader and each.mono <= before and not self._is_excused(each.pid, each.group)
        ]  # fmt: skip
        failed = {each.pid: each for each in counted if each.pid}
        for failure in sorted(counted, key=lambda failure: failure.mono):
            if not (taken_by := failed.get(failure.parent, failure)).failure.said:  # a shell, for example
                taken_by.failure = replace(taken_by.failure, said=failure.failure.said)
        return sorted((each for each in counted if each.parent not in failed), key=lambda failure: failure.mono)

    def _is_excused(self, pid: int, group: int) -> bool:
        return not self._excused.isdisjoint({pid, -pid, -group} - {0})

    def _was_restarted(self, each: _Failure) -> bool:
        return each.mono < self._restarts.get(each.parent, 0.0)


def _number(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
