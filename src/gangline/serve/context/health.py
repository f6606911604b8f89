"""Health of store and database: the last known state of the store, and a cached write probe of the database.

Ready means that a delivery would be stored. A probe costs a disk write, so its result holds for a few seconds.
"""

import threading
import time
from collections.abc import Callable

import structlog

from gangline.errors import StorageError
from gangline.serve.database.open import Database
from gangline.serve.database.types import DatabaseProblem


class StoreHealth:
    """One sentence, or none; safe from any thread."""

    def __init__(self) -> None:
        self._problem: str | None = None

    def failed(self, error: StorageError) -> None:
        """Record that a request to the store failed."""
        self._problem = str(error)

    def answered(self) -> None:
        """Record that the store answered a request."""
        self._problem = None

    def problem(self) -> str | None:
        """One sentence while the store is unavailable."""
        return self._problem


FRESH_SECONDS = 5.0
PROBE_TIMEOUT_SECONDS = 3.0
"""Time after which requests fail because the disk or the database does not answer."""
log = structlog.get_logger()


class DatabaseReadiness:
    """A cached write probe of the database, one at a time; thread-safe."""

    def __init__(self, database: Database, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._database, self._clock = database, clock
        self._found: DatabaseProblem | None = None
        self._fresh_until = float("-inf")
        self._lock = threading.Lock()

    def problem(self) -> DatabaseProblem | None:
        """What was wrong at most FRESH_SECONDS ago."""
        if not self._lock.acquire(timeout=PROBE_TIMEOUT_SECONDS):
            return DatabaseProblem("does not answer", "a write to the database has been waiting for long")
        try:
            if self._fresh_until <= self._clock():
                found = self._database.check()
                if found is not None and found != self._found:
                    log.warning("not_ready", cause=found.detail)
                elif found is None and self._found is not None:
                    log.warning("ready_again")
                self._found, self._fresh_until = found, self._clock() + FRESH_SECONDS
            return self._found
        finally:
            self._lock.release()
