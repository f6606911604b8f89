"""Watch of the processes of a rank: each Python reports how it failed, and how those failed that it waited for.

Standard library only and nothing of gangline, as `audit`; `processes` calls it. Lines of JSON go to the file that
GANGLINE_PROCESSES names, each when it happens, so that a process that is killed keeps them:

    {"event": "began", "group", "program"}                       a process that no Python waits for
    {"event": "ended"}                                           that process came to its end
    {"event": "failed", "parent", "group", "program", "what", "how", "said"}  by an exception, or by os._exit
    {"event": "child", "pid", "parent", "program", "what", "how"}             a process that did not end with 0
    {"event": "excused", "pid" or "group"}                       its end was ordered, or does not count
    {"event": "restarted", "parent"}                             torch.distributed.run started this process again
    {"event": "unseen", "program", "why"}                        failures that nothing here sees

Each process is seen by the exit status that its parent waits for; the keeper inherits those whose parent has ended. A
Python that another program started, such as a shell, says when it begins and ends.
"""

import atexit
import os
import sys
import time

from .report_file import ReportFile

TYPE_CHECKING = False
if TYPE_CHECKING:  # modules that cost every program its start
    from collections.abc import Mapping
    from typing import Any

    from .started import StartedProgram, StartedPrograms

_FULL = b'{"event": "unseen", "program": "", "why": "the report of processes was full"}\n'
_ENDING = frozenset({1, 2, 3, 6, 9, 15})
"""Signals that are sent to end a process."""
_MOST_LETTERS = 300
_LOOK = os.WEXITED | os.WNOWAIT


class ProcessWatch:
    """Watch of this process."""

    def __init__(self, environ: "Mapping[str, str]", program: str) -> None:
        """`environ`: variables of this process; `program`: its name."""
        self._file = ReportFile(environ["GANGLINE_PROCESSES"], _FULL)
        self._environ, self._program = environ, program
        self._programs: StartedPrograms | None = None
        self._started: dict[int, StartedProgram] = {}
        self._ordered: set[int] = set()
        self._unseen: set[str] = set()
        self._began: int | None = None
        """This process, if it reported that it began."""
        self._has_failed = False

    def begin(self) -> None:
        """Report that this process begins, and at its end that it came to it."""
        self._began = os.getpid()
        atexit.register(self.ended)
        self._write("began", group=os.getpgrp(), program=self._program)

    def restarted(self) -> None:
        """torch.distributed.run has started this process again."""
        self._write("restarted", parent=os.getppid())

    def forked(self) -> None:
        """Called in the child process after a fork."""
        self._started.clear()
        self._ordered.clear()
        self._has_failed = False

    def ended(self) -> None:
        """This process has come to its end by itself."""
        if self._began == os.getpid():
            self._began = None
            try:
                self._write("ended")
            except OSError:  # Python would print a traceback here, at the end of the program's log
                return

    def failed(self, how: str, error: BaseException | None = None, what: str = "") -> None:
        """This process fails; the first reason counts."""
        if not self._has_failed:
            self._has_failed = True
            self._write("failed", parent=os.getppid(), group=os.getpgrp(), program=self._program,
                        what=what or self._program, how=how, said=_said(error))  # fmt: skip

    def thread_failed(self, error: BaseException, name: str) -> None:
        """A thread of this process ended by an exception; it counts where code of the commit ran in it."""
        if not sys.is_finalizing() and self._programs_of_commit().holds(error.__traceback__):
            self._write("failed", parent=os.getpid(), pid=0, program=self._program,
                        what=f"{name} of {self._program}", how="thread", said=_said(error))  # fmt: skip

    def starts(self, pid: int, paths: "list[Any]", words: "list[Any]", cwd: "Any", environ: "Any") -> None:
        """A program was started as process `pid`."""
        program = self._programs_of_commit().describe(paths, words, cwd, environ)
        self._started[pid] = program
        self._note_unseen(program, program.unseen)

    def looks(self, pid: int, options: int) -> None:
        """Process `pid` is about to be waited for: one that started others may have passed over their failures."""
        program = self._started.get(pid)
        if program is None or not program.hides:
            return
        if os.waitid(os.P_PID, pid, _LOOK | options & os.WNOHANG) is not None and _waited_for_children(pid):
            self._note_unseen(program, "it started programs of which nothing is seen")

    def child_ended(self, pid: int, status: int) -> None:
        """Process `pid` was waited for."""
        program = self._started.pop(pid, None)
        how = _how(status)
        if not how or not self._ordered.isdisjoint((pid, -pid)):
            return
        if program is None:
            self._write("child", pid=pid, parent=os.getpid(), program=self._program,
                        what=f"a process of {self._program}", how=how)  # fmt: skip
        elif program.counts:
            self._write("child", pid=pid, parent=os.getpid(), program=program.program, what=program.what, how=how)
        elif program.is_python:
            self._excuse(pid=pid)

    def forgets(self, pid: int) -> None:
        """Process `pid` never was the program that it was meant to be."""
        self._started.pop(pid, None)

    def shell_ended(self, command: str, status: int) -> None:
        """A shell that `os.system` started has run `command`."""
        program = self._programs_of_commit().describe(["/bin/sh"], ["sh", "-c", command], None, None)
        self._note_unseen(program, program.unseen)
        if program.counts and (how := _how(status)):
            self._write("child", pid=0, parent=os.getpid(), program=program.program, what=program.what, how=how)

    def exits(self, status: int) -> None:
        """This process is about to end without any clean-up."""
        if status:
            self.failed(f"code {status & 0xFF}")
        else:
            self.ended()

    def orders(self, pid: int, number: int) -> None:
        """A signal is about to be sent to a process, or as `os.kill` has it to a group."""
        if number in _ENDING and pid not in self._ordered and pid != os.getpid():
            self._ordered.add(pid)
            self._excuse(**({"pid": pid} if pid > 0 else {"group": -pid or os.getpgrp()}))

    def _excuse(self, **whom: int) -> None:
        self._write("excused", **({"pid": 0} | whom))

    def _note_unseen(self, found: "StartedProgram", why: str) -> None:
        if why and found.program not in self._unseen and len(self._unseen) < 20:
            self._unseen.add(found.program)
            self._write("unseen", program=found.program, why=why)

    def _programs_of_commit(self) -> "StartedPrograms":
        if self._programs is None:
            from .started import StartedPrograms  # most processes start no program

            self._programs = StartedPrograms(self._environ)
        return self._programs

    def _write(self, event: str, **values: object) -> None:
        self._file.write({"event": event, "mono": time.monotonic(), **values})


def _how(status: int) -> str:
    """`code 3` or `signal 9`; empty: the process ended with 0, or has only stopped."""
    if os.WIFSIGNALED(status):
        return f"signal {os.WTERMSIG(status)}"
    return f"code {os.WEXITSTATUS(status)}" if os.WIFEXITED(status) and status else ""


def _said(error: BaseException | None) -> str:
    """The exception as the last line of a traceback names it."""
    if error is None:
        return ""
    kind = type(error)
    name = (
        kind.__qualname__ if kind.__module__ in ("builtins", "__main__") else f"{kind.__module__}.{kind.__qualname__}"
    )
    try:
        first = next((line.strip() for line in str(error).splitlines() if any(map(str.isalnum, line))), "")
    except Exception:
        first = ""
    return f"{name}: {first}"[:_MOST_LETTERS] if first else name


def _waited_for_children(pid: int) -> bool:
    """Did process `pid`, which has ended, wait for others? A started program has page faults, which count for it."""
    with open(f"/proc/{pid}/stat", "rb") as file:
        return int(file.read().rpartition(b")")[2].split()[8]) > 0
