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

_LOG_BYTES = 1 << 16
_EVENT_BYTES = 1 << 18
_MOST_LETTERS = 300
_TRACEBACK = "Traceback (most recent call last):"
_MOST_AFTER = 20
"""Lines that may follow the first line of an exception: the rest of its message, notes, output of ending threads."""
_CONTROL_SEQUENCE = re.compile("\x1b\\[[0-?]*[ -/]*[@-~]")


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


def last_meaningful_line(log: Path) -> str:
    """Last output of a rank's newest generation, one line of printable characters; empty: there is none."""
    return _shortened(_meaningful(_newest(log)))


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
                return lines[number]
            break
    return next((line for line in reversed(lines) if any(map(str.isalnum, line))), "")


def _shortened(line: str) -> str:
    shown = " ".join("".join(each if each.isprintable() else " " for each in line).split())
    return shown if len(shown) <= _MOST_LETTERS else shown[: _MOST_LETTERS - 1] + "…"
