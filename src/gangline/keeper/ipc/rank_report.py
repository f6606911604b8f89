"""Report of a rank to its keeper: how it ended and what it saved, from the events that its runtime writes.

A program that does not join writes no events: its exit code is its own, and what it saved is not known.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gangline.spec.gang.status import read_event

_LAST_BYTES = 1 << 18
_SAVES_BYTES = 16 << 20
_MOST_CHARACTERS = 500


@dataclass(frozen=True, kw_only=True, slots=True)
class RankReport:
    """Last word of the process of a rank."""

    code: int
    """Exit code by its own account."""
    reason: str


class RankEvents:
    """Events of a rank whose process is about to start; the file may have those of earlier processes."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._start = _size(path)

    def report(self) -> RankReport | None:
        """How the process ended by its own account; None: it did not say."""
        lines = _last_lines(self._path, max(self._start, _size(self._path) - _LAST_BYTES))
        event = _newest(lines, "done")
        code = event.get("exit")
        if not isinstance(code, int):
            return None
        return RankReport(code=code, reason=str(event.get("reason") or "")[:_MOST_CHARACTERS])

    def saved_step(self) -> int | None:
        """Step of the newest save, also of an earlier process of the rank; 0: there is none.

        None: not known, because the process wrote no event, or too many.
        """
        size = _size(self._path)
        if size <= self._start:
            return None
        lines = _last_lines(self._path, max(0, size - _SAVES_BYTES))
        step = _newest(lines, "saved", "resumed").get("step")
        return step if isinstance(step, int) else 0 if size <= _SAVES_BYTES else None


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _last_lines(path: Path, start: int) -> list[bytes]:
    try:
        with path.open("rb") as file:
            file.seek(start)
            return file.read(_SAVES_BYTES).splitlines()
    except FileNotFoundError:
        return []


def _newest(lines: Sequence[bytes], *names: str) -> dict[str, Any]:
    """The newest event of these names; empty: there is none."""
    marks = [f'"{name}"'.encode() for name in names]
    for line in reversed(lines):
        if any(mark in line for mark in marks) and (event := read_event(line)) and event.get("event") in names:
            return event
    return {}
