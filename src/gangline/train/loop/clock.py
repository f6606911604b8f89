"""The switch: a rank is in exactly one phase at any instant, so the seconds of all phases sum to the wall."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

STEP_PHASES = ("data", "forward", "backward", "wait", "optimizer", "checkpoint", "other")
"""What a step consists of; the remaining phases (rendezvous, build, resume, evaluate, stop) lie between steps."""


class Clock:
    """Books every second since it was made under one phase."""

    def __init__(self, phase: str, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._phase = phase
        self._since = now()
        self._seconds: dict[str, float] = {}

    @property
    def phase(self) -> str:
        return self._phase

    def switch(self, phase: str) -> None:
        """From now on it is `phase`."""
        now = self._now()
        self._seconds[self._phase] = self._seconds.get(self._phase, 0.0) + now - self._since
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
        """Book `seconds` of what was booked under `source` under `target` instead: known only afterwards."""
        seconds = min(seconds, self._seconds.get(source, 0.0))
        self._seconds[source] = self._seconds.get(source, 0.0) - seconds
        self._seconds[target] = self._seconds.get(target, 0.0) + seconds

    def lap(self) -> dict[str, float]:
        """Seconds by phase since the last lap, the current phase up to now."""
        self.switch(self._phase)
        seconds, self._seconds = self._seconds, {}
        return seconds
