"""Limits per caller: requests by token bucket, open streams by count, concurrent work per name."""

import asyncio
import threading
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from gangline.serve.web.responses import RequestRefused

MAX_CALLERS = 10_000
"""Buckets that are remembered; a caller that was forgotten starts with a full one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RequestLimits:
    """Limits of one caller and of one request."""

    body_bytes: int = 64 * 1024
    body_seconds: float = 10.0
    """Time from the headers to the end of the body."""
    requests_per_second: float = 50.0
    """Lasting rate of one principal; in between `burst` at once."""
    burst: int = 300
    failed_logins_per_second: float = 1.0
    """Lasting rate of one address that shows unknown tokens."""
    failed_logins_burst: int = 20
    streams: int = 256
    """Event streams and followed logs, of everybody."""
    streams_each: int = 16
    """Streams that one principal may have open."""


class TokenBuckets:
    """Token buckets by name, forgotten longest-unused first."""

    def __init__(self, rate: float, burst: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate, self._burst, self._clock = rate, burst, clock
        self._levels: OrderedDict[str, tuple[float, float]] = OrderedDict()
        self._lock = threading.Lock()

    def take(self, name: str) -> float:
        """Take one; 0, or the seconds until there is one."""
        with self._lock:
            level = self._level(name)
            if level < 1:
                return (1 - level) / self._rate
            self._levels[name] = (level - 1, self._clock())
            self._levels.move_to_end(name)
            if len(self._levels) > MAX_CALLERS:
                self._levels.popitem(last=False)
            return 0.0

    def is_empty(self, name: str) -> bool:
        """Whether `take` would refuse; takes nothing."""
        with self._lock:
            return self._level(name) < 1

    def _level(self, name: str) -> float:
        level, seen = self._levels.get(name, (self._burst, self._clock()))
        return min(self._burst, level + (self._clock() - seen) * self._rate)


class ConcurrencyLimit:
    """Limits concurrent work per name; the rest waits in order of arrival. For one event loop only."""

    def __init__(self, at_once: int) -> None:
        self._at_once = at_once
        self._slots: dict[str, tuple[asyncio.Semaphore, set[object]]] = {}

    @asynccontextmanager
    async def of(self, name: str) -> AsyncIterator[None]:
        """Wait for a turn; it ends with the block."""
        semaphore, users = self._slots.setdefault(name, (asyncio.Semaphore(self._at_once), set()))
        me = object()
        users.add(me)
        try:
            async with semaphore:
                yield
        finally:
            users.discard(me)
            if not users:
                self._slots.pop(name, None)


class StreamSlots:
    """How many streams are open, by caller and in all."""

    def __init__(self, *, limit: int, limit_each: int) -> None:
        self._limit, self._limit_each = limit, limit_each
        self._open: dict[str, int] = {}
        self._lock = threading.Lock()

    def take(self, name: str) -> None:
        """Raises RequestRefused where no slot is left; the caller gives it back."""
        with self._lock:
            if sum(self._open.values()) >= self._limit or self._open.get(name, 0) >= self._limit_each:
                detail = f"too many streams are open, at most {self._limit_each} of one caller; close one"
                raise RequestRefused(429, detail, {"Retry-After": "10"})
            self._open[name] = self._open.get(name, 0) + 1

    def give_back(self, name: str) -> None:
        """Free one slot of a caller."""
        with self._lock:
            left = self._open.get(name, 0) - 1
            if left > 0:
                self._open[name] = left
            else:
                self._open.pop(name, None)
