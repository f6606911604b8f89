"""Phase clock of a rank, its ledger, and the time spent waiting for other ranks.

A rank is in exactly one phase at any time, so the seconds of all phases sum to the wall time. The phases of a step are
those of `spec.measurements.PHASES`; the others (rendezvous, build, resume, evaluate, stop) lie between steps.

For DDP the wait is the rest of backward after the last computation. Collectives that block are added one by one: those
of FSDP2 on the CPU, of sequences, experts and replicas. A GPU computes on after its calls returned: what it computes
until the end of its own backward pass is booked as backward, the rest until the sums of all ranks arrive as waiting.
Waiting inside a pass, for parameters that FSDP2 gathers, is not measured there and counts as that pass.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager


class PhaseClock:
    """Books every second since `began` under one phase; all laps together reach up to `lapped`."""

    def __init__(self, phase: str, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._phase = phase
        self._since = self.began = self.lapped = now()
        self._seconds: dict[str, float] = {}
        self.listener: Callable[[str], None] | None = None
        """Called with each phase that begins."""

    @property
    def phase(self) -> str:
        """Name of the current phase."""
        return self._phase

    def switch(self, phase: str) -> None:
        """Start `phase`."""
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
        """Move `seconds` from `source` to `target`.

        Waits and bubbles are known only after a pass: it is booked as what it is while it lasts, and the time that was
        waiting is moved at its end. The runner of a pipeline books a step as "forward" and then moves "backward",
        "wait" (for a neighbour that is late) and "bubble" (nothing to do by the schedule).
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


_CAUSES = {"forward": "compute", "backward": "compute", "optimizer": "compute"}
"""Cause of a phase; other phases are causes by their own name."""


class RankLedger:
    """Seconds of a rank by cause."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def book(self, lap: Mapping[str, float], *, redone: bool = False) -> None:
        """Add one lap; all of it counts as `redone` if an earlier generation had finished this step."""
        for phase, seconds in lap.items():
            cause = "redone" if redone else _CAUSES.get(phase, phase)
            self.seconds[cause] = self.seconds.get(cause, 0.0) + seconds


class WaitMeter:
    """Seconds that a rank waited for others."""

    def __init__(self) -> None:
        self._blocked = 0.0
        self._computed: float | None = None

    def add(self, seconds: float) -> None:
        """Add the seconds for which a collective blocked."""
        self._blocked += seconds

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Add the time that the block takes."""
        start = time.monotonic()
        try:
            yield
        finally:
            self.add(time.monotonic() - start)

    def computed(self) -> None:
        """The computation of this backward pass has ended; the last gradients are being sent."""
        self._computed = time.monotonic()

    def take(self) -> float:
        """Seconds waited since the last call; called at the end of a forward or backward pass."""
        seconds = self._blocked
        if self._computed is not None:
            seconds += time.monotonic() - self._computed
        self._blocked, self._computed = 0.0, None
        return seconds
