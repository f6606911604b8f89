"""Would a delivery be kept? Every probe asks, so an answer holds for a few seconds: each costs a wait for the disk."""

import threading
import time
from collections.abc import Callable

import structlog

from gangline.serve.protocol import Database
from gangline.serve.types import Trouble

FRESH_SECONDS = 5.0
PATIENCE_SECONDS = 3.0
"""Then whoever asks meanwhile hears that the disk, or the database, does not answer."""
log = structlog.get_logger()


class Readiness:
    """One look at the database at a time, from any thread."""

    def __init__(self, database: Database, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._database, self._clock = database, clock
        self._found: Trouble | None = None
        self._fresh_until = float("-inf")
        self._lock = threading.Lock()

    def trouble(self) -> Trouble | None:
        """What was wrong at most FRESH_SECONDS ago."""
        if not self._lock.acquire(timeout=PATIENCE_SECONDS):
            return Trouble("does not answer", "a write to the database has been waiting for long")
        try:
            if self._fresh_until <= self._clock():
                self._look()
            return self._found
        finally:
            self._lock.release()

    def _look(self) -> None:
        found = self._database.check()
        if found is not None and found != self._found:
            log.warning("not_ready", cause=found.said)
        elif found is None and self._found is not None:
            log.warning("ready_again")
        self._found, self._fresh_until = found, self._clock() + FRESH_SECONDS
