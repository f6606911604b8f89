"""Last relevant line of a rank's log: its exception, or else the last thing that it printed.

For ranks that left no reason of their own: programs, and tasks that ended before the runtime could report.
"""

import re
from collections.abc import Sequence
from pathlib import Path

from gangline.keeper.logs.log_files import GENERATION_HEADER, last_bytes

_TAIL_BYTES = 1 << 16
_MOST_LETTERS = 300
_TRACEBACK = "Traceback (most recent call last):"
_MOST_AFTER = 20
"""Lines that may follow an exception's first one: the rest of its message, notes, words of threads that still end."""
_CONTROL_SEQUENCE = re.compile("\x1b\\[[0-?]*[ -/]*[@-~]")


def last_meaningful_line(log: Path) -> str:
    """What a rank said last in its newest generation, one line of printable characters; empty: nothing."""
    return _cut(_meaningful(_newest(log)))


def final_exception(log: Path) -> str:
    """The exception of a traceback that is the last thing in a rank's newest generation; empty: it is not."""
    lines = _newest(log)
    while lines and not lines[-1].strip():
        lines.pop()
    starts = [number for number, line in enumerate(lines) if line.strip() == _TRACEBACK]
    after = [line for line in lines[starts[-1] + 1 :] if line.strip() and not line[0].isspace()] if starts else []
    return _cut(after[0]) if len(after) == 1 and lines[-1] == after[0] else ""


def _newest(log: Path) -> list[str]:
    """Lines of the newest generation, of the last 64 KiB."""
    lines = _CONTROL_SEQUENCE.sub("", last_bytes(log, _TAIL_BYTES).decode(errors="replace")).splitlines()
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


def _cut(line: str) -> str:
    shown = " ".join("".join(each if each.isprintable() else " " for each in line).split())
    return shown if len(shown) <= _MOST_LETTERS else shown[: _MOST_LETTERS - 1] + "…"
