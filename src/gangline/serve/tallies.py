"""Counts of runs for the head of the list: counting them all for every page would be most of its time."""

import threading
from collections.abc import Callable, Mapping, Sequence
from time import monotonic

SECONDS = 2.0
"""As old as a count may be: the index looks at open runs no oftener."""
MOST = 256
"""Sets of projects that are remembered, one for each kind of reader."""
Counts = Mapping[tuple[str, str], int]


class Tallies:
    """Runs by (project, verdict), counted at most once in `SECONDS` for the same projects; thread-safe."""

    def __init__(self, count: Callable[[Sequence[str] | None], Counts], clock: Callable[[], float] = monotonic) -> None:
        self._count, self._clock = count, clock
        self._kept: dict[tuple[str, ...] | None, tuple[float, Counts]] = {}
        self._lock = threading.Lock()

    def of(self, projects: tuple[str, ...] | None) -> Counts:
        with self._lock:
            kept = self._kept.get(projects)
            if kept is not None and self._clock() - kept[0] < SECONDS:
                return kept[1]
        found = self._count(projects)
        with self._lock:
            if len(self._kept) >= MOST:
                self._kept.clear()
            self._kept[projects] = (self._clock(), found)
        return found
