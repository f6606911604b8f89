"""What a rank left behind: last ledger from its events, last lines and exception from its log.

The log speaks for ranks that report no reason of their own: programs, and tasks that ended before the runtime could
report.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gangline.keeper.logs.log_files import GENERATION_HEADER, last_bytes, tail
from gangline.spec.gang.status import read_event

USAGE_CODE = 2
"""Exit code of programs that do not understand their arguments."""
_LOG_BYTES = 1 << 16
_EVENT_BYTES = 1 << 18
_MOST_LETTERS = 300
_TRACEBACK = "Traceback (most recent call last):"
_MOST_AFTER = 20
"""Lines that may follow the first line of an exception: the rest of its message, notes, output of ending threads."""
_CONTROL_SEQUENCE = re.compile("\x1b\\[[0-?]*[ -/]*[@-~]")
_CHAINED = (
    "During handling of the above exception, another exception occurred:",
    "The above exception was the direct cause of the following exception:",
)
_LOST_WORKER = re.compile(r"\S+: DataLoader worker \(pid.*|\S*BrokenProcessPool: .*")
"""Exceptions that say that a worker process died: what else is raised while they are handled follows from them."""
_USAGE = re.compile(r"\s*usage: \S", re.IGNORECASE)
_ERROR = re.compile(r"(?:.*\s)?error: \S", re.IGNORECASE)
_SUBCOMMAND = re.compile(r"\bCOMMAND\b|\{\w[^}]*\}")
_MOST_BEFORE = 20
"""Lines, such as warnings, that may precede a usage."""


def last_ledger(path: Path, generation: int) -> dict[str, Any] | None:
    """Last `ledger` event of this generation in a rank's events; None: there is none."""
    for line in reversed(tail(path, _EVENT_BYTES).decode(errors="replace").splitlines()):
        if '"ledger"' not in line:
            continue
        event = read_event(line)
        if event is not None and event.get("event") == "ledger" and event.get("generation") == generation:
            return event
    return None


def last_lines(log: Path, count: int = 10) -> list[str]:
    """Last lines of a log; empty if there is no file."""
    return tail(log, _LOG_BYTES).decode(errors="replace").splitlines()[-count:]


def failure_line(log: Path, *, code: int) -> str:
    """Why a rank ended with `code`, from its newest generation's output: one line of printable characters.

    Empty: there is no output.
    """
    lines = _newest(log)
    return _shortened((_usage(lines) if code == USAGE_CODE else "") or _meaningful(lines))


def final_exception(log: Path) -> str:
    """Exception of the traceback that ends a rank's newest generation; empty: it does not end with one."""
    lines = _newest(log)
    while lines and not lines[-1].strip():
        lines.pop()
    starts = [number for number, line in enumerate(lines) if line.strip() == _TRACEBACK]
    after = [line for line in lines[starts[-1] + 1 :] if line.strip() and not line[0].isspace()] if starts else []
    return _shortened(after[0]) if len(after) == 1 and lines[-1] == after[0] else ""


def _newest(log: Path) -> list[str]:
    """Lines of the newest generation within the last 64 KiB."""
    lines = _CONTROL_SEQUENCE.sub("", last_bytes(log, _LOG_BYTES).decode(errors="replace")).splitlines()
    began = max((number for number, line in enumerate(lines, 1) if line.startswith(GENERATION_HEADER)), default=0)
    return lines[began:]


def _meaningful(lines: Sequence[str]) -> str:
    """The exception that a traceback at the end names, or the last line with a letter or a digit in it."""
    starts = [number for number, line in enumerate(lines) if line.strip() == _TRACEBACK]
    for number in range(starts[-1] + 1 if starts else len(lines), len(lines)):
        if lines[number].strip() and not lines[number][0].isspace():
            if len(lines) - number <= _MOST_AFTER:
                return _lost_worker(lines, starts) or lines[number]
            break
    return next((line for line in reversed(lines) if any(map(str.isalnum, line))), "")


def _lost_worker(lines: Sequence[str], starts: Sequence[int]) -> str:
    """The exception of the last chain of tracebacks that says that a worker process died; empty: none does."""
    begin = len(starts) - 1
    while begin and any(line in _CHAINED for line in lines[max(0, starts[begin] - 2) : starts[begin]]):
        begin -= 1
    return next((line for line in lines[starts[begin] :] if _LOST_WORKER.fullmatch(line)), "")


def _usage(lines: Sequence[str]) -> str:
    """What a program that printed its usage lacked; empty: it printed none."""
    at = next((number for number, line in enumerate(lines[:_MOST_BEFORE]) if _USAGE.match(line)), None)
    if at is None:
        return ""
    if error := next((line for line in lines[at:] if _ERROR.match(line)), ""):
        return error
    lacks = "a sub-command is missing in project.command"
    if not _SUBCOMMAND.search(lines[at]):
        lacks = "project.command lacks some of it"
    return f"it printed its usage: {lines[at].strip()}; {lacks}"


def _shortened(line: str) -> str:
    shown = " ".join("".join(each if each.isprintable() else " " for each in line).split())
    return shown if len(shown) <= _MOST_LETTERS else shown[: _MOST_LETTERS - 1] + "…"
