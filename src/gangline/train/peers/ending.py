"""The end of a generation that runs on several nodes: when all hear that it is over, and until when they may report."""

import time

from gangline.train.outcome import Halt

DOUBT_SECONDS = 1.0
"""A node whose rank lost a peer waits so long for the news of which."""
SETTLE_SECONDS = 30.0
"""Beyond the grace, for a node to end its ranks and say so."""


class Ending:
    """Of one generation; nothing speaks against it at first."""

    def __init__(self) -> None:
        self._halt: Halt | None = None
        self._halt_at = 0.0
        self._told = False
        self._reports_by: float | None = None

    @property
    def is_called(self) -> bool:
        """Somewhere it is over, though not everybody has heard of it yet."""
        return self._halt is not None

    @property
    def is_late(self) -> bool:
        """Every node should have reported by now."""
        return self._reports_by is not None and time.monotonic() > self._reports_by

    @property
    def halt(self) -> Halt | None:
        """As all nodes may know it; None while it runs, or while there is doubt about who failed first."""
        return self._halt if self._halt and time.monotonic() >= self._halt_at else None

    def news(self) -> Halt | None:
        """`halt`, once."""
        if self._told or (halt := self.halt) is None:
            return None
        self._told = True
        return halt

    def call(self, halt: Halt, *, doubt: bool) -> None:
        """It is over; `doubt`: for want of a peer, of which others may know more."""
        at = time.monotonic() + (DOUBT_SECONDS if doubt else 0.0)
        self._halt_at = min(self._halt_at, at) if self._halt else at
        self._halt = Halt(hangs=halt.hangs or bool(self._halt and self._halt.hangs))
        self.allow(0.0)

    def allow(self, seconds: float) -> None:
        """Nodes that were asked to stop have so long for it."""
        self._reports_by = max(self._reports_by or 0.0, time.monotonic() + seconds + SETTLE_SECONDS)
