"""Queue of status updates to a forge, sent by a thread, so that a slow forge never blocks the driver.

A slot (a status, the comment) holds only its newest update, so the queue is as long as there are slots. Updates that
can wait are sent at most once a minute; at the end what is left is sent at once. Errors are kept as sentences for the
record; a forge that does not answer is retried a minute later, one that refuses gets no further request.
"""

import math
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from gangline.errors import ConfigError, GanglineError
from gangline.forge.protocol import CommitStatus

MINUTE = 60.0
QueuedUpdate = CommitStatus | Callable[[], None]
"""A status, or what sends something else."""


@dataclass(slots=True)
class _Slot:
    update: QueuedUpdate | None = None
    """Not sent yet."""
    is_urgent: bool = False
    not_before: float = 0.0
    """Time of the monotonic clock before which nothing is sent, unless it is urgent."""
    is_refused: bool = False


class StatusQueue:
    """Queue of one run's statuses for one forge. Thread-safe; no failure of the forge raises."""

    def __init__(self, deliver: Callable[[QueuedUpdate], None], *, interval: float = MINUTE) -> None:
        self.errors: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._deliver = deliver
        self._interval = interval
        self._slots: dict[str, _Slot] = {}
        self._state = threading.Condition()
        self._carried: str | None = None
        self._is_closing = False
        self._away_until = 0.0
        self._thread = threading.Thread(target=self._work, name="forge", daemon=True)
        self._thread.start()

    def put(self, slot: str, update: QueuedUpdate, *, urgent: bool) -> None:
        """Replace what waits in `slot`; returns at once."""
        with self._state:
            place = self._slots.setdefault(slot, _Slot())
            if not place.is_refused:
                place.update, place.is_urgent = update, urgent or place.is_urgent
                self._state.notify_all()

    def withdraw(self, slot: str, *, seconds: float) -> None:
        """Drop what waits in `slot`; waits for a request that is being sent."""
        with self._state:
            self._slots[slot] = _Slot(is_refused=True)
            self._state.wait_for(lambda: self._carried != slot, timeout=seconds)

    def close(self, *, seconds: float) -> None:
        """Send what is left and stop, within `seconds`; an unavailable forge is tried once more."""
        with self._state:
            self._is_closing, self._away_until = True, 0.0
            self._state.notify_all()
        self._thread.join(seconds)
        if self._thread.is_alive():
            self.errors.put(f"the forge did not accept the last status of this run within {seconds:.0f} s")

    def _work(self) -> None:
        while (picked := self._pick()) is not None:
            slot, update = picked
            try:
                self._deliver(update)
            except ConfigError as error:
                self._refused(slot, error)
            except GanglineError as error:
                self._failed(slot, update, error)
            except Exception as error:  # a bug must not keep later updates from being sent
                self._refused(slot, error)
            with self._state:
                self._carried = None
                self._state.notify_all()

    def _pick(self) -> tuple[str, QueuedUpdate] | None:
        """Wait for the next entry that may be sent; None: closed, and nothing is left that could be sent."""
        with self._state:
            while True:
                now = time.monotonic()
                for name, place in self._slots.items():
                    if place.update is not None and now >= self._due(place):
                        update, place.update, place.is_urgent = place.update, None, False
                        place.not_before = now + self._interval
                        self._carried = name
                        return name, update
                waiting = [self._due(place) for place in self._slots.values() if place.update is not None]
                if self._is_closing:
                    return None
                self._state.wait(min(waiting) - now if waiting else None)

    def _due(self, place: _Slot) -> float:
        return self._away_until if self._is_closing or place.is_urgent else max(place.not_before, self._away_until)

    def _refused(self, slot: str, error: Exception) -> None:
        self.errors.put(f"{type(error).__name__}: {error}" if not isinstance(error, GanglineError) else str(error))
        with self._state:
            self._slots[slot] = _Slot(is_refused=True)

    def _failed(self, slot: str, update: QueuedUpdate, error: GanglineError) -> None:
        """The forge is unavailable: the entry waits, unless a newer one replaced it."""
        with self._state:
            place = self._slots[slot]
            if place.update is None and not place.is_refused:
                place.update, place.is_urgent = update, True
            self._away_until = math.inf if self._is_closing else time.monotonic() + self._interval
        self.errors.put(str(error))
