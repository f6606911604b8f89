"""Where the seconds of a rank go: the phase clock, the ledger of its laps, and the time spent waiting for other ranks.

A rank is in exactly one phase at any instant, so the seconds of all phases sum to the wall time. Phases of a step are
those of `spec.measured.PHASES`; the others (rendezvous, build, resume, evaluate, stop) lie between steps.

For DDP the wait is what is left of backward after the last computation. Collectives that block are added one by one:
those of FSDP2 on the CPU, of sequences, experts and replicas. On CUDA, FSDP2's run asynchronously and are not seen.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager


class PhaseClock:
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


_CAUSES = {"forward": "compute", "backward": "compute", "optimizer": "compute"}
"""Phase to cause; every other phase is a cause by its own name."""


class RankLedger:
    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def book(self, lap: Mapping[str, float], *, redone: bool = False) -> None:
        """Add one lap; `redone`: an earlier generation had done this step already, whatever was done in it."""
        for phase, seconds in lap.items():
            cause = "redone" if redone else _CAUSES.get(phase, phase)
            self.seconds[cause] = self.seconds.get(cause, 0.0) + seconds


class WaitMeter:
    def __init__(self) -> None:
        self._blocked = 0.0
        self._computed: float | None = None

    def add(self, seconds: float) -> None:
        """A collective blocked for so long."""
        self._blocked += seconds

    def computed(self) -> None:
        """Nothing of this backward pass is left to compute, the last gradients are on their way."""
        self._computed = time.monotonic()

    def take(self) -> float:
        """Seconds waited since last asked, up to now: ask right at the end of a forward or backward pass."""
        seconds = self._blocked
        if self._computed is not None:
            seconds += time.monotonic() - self._computed
        self._blocked, self._computed = 0.0, None
        return seconds
