"""The switch: a rank is in exactly one phase at any instant, so the seconds of all phases sum to the wall.

Phases of a step are those of `spec.measured.PHASES`; the remaining ones (rendezvous, build, resume, evaluate, stop) lie
between steps.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Clock:
    """Books every second from when it `began` under one phase; all laps together reach up to `lapped`."""

    def __init__(self, phase: str, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._phase = phase
        self._since = self.began = self.lapped = now()
        self._seconds: dict[str, float] = {}
        self.listener: Callable[[str], None] | None = None
        """Told of each phase that begins."""

    @property
    def phase(self) -> str:
        return self._phase

    def switch(self, phase: str) -> None:
        """From now on it is `phase`."""
        now = self._now()
        self._seconds[self._phase] = self._seconds.get(self._phase, 0.0) + now - self._since
        if self.listener is not None and phase != self._phase:
            self.listener(phase)
        self._phase, self._since = phase, now

    @contextmanager
    def during(self, phase: str) -> Iterator[None]:
        """`phase` inside the block, then what it was before."""
        before = self._phase
        self.switch(phase)
        try:
            yield
        finally:
            self.switch(before)

    def move(self, source: str, target: str, seconds: float) -> None:
        """Book `seconds` of what was booked under `source` under `target` instead: known only afterwards.

        How waits and bubbles get their seconds: a pass is booked as what it is while it lasts, and what of it turns out
        to have been waiting is moved at its end. For one step of a pipeline, under "forward" as a whole, its runner
        moves "backward", "wait" (for a neighbour that is late) and "bubble" (nothing to do by the schedule).
        """
        seconds = min(seconds, self._seconds.get(source, 0.0))
        self._seconds[source] = self._seconds.get(source, 0.0) - seconds
        self._seconds[target] = self._seconds.get(target, 0.0) + seconds

    def lap(self) -> dict[str, float]:
        """Seconds by phase since the last lap, the current phase up to now."""
        self.switch(self._phase)
        self.lapped = self._since
        seconds, self._seconds = self._seconds, {}
        return seconds
