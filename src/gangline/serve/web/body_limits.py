"""Limits on request bodies: bytes, seconds, and memory of all bodies together.

Memory is counted by client address. When it runs out, the largest body still being read, of the address that has most,
is refused.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.requests import Request

from gangline.serve.web.client_address import peer_address
from gangline.serve.web.responses import RequestRefused

MAX_BYTES = 25 << 20
READ_SECONDS = 10.0
"""Longest time that a forge waits for an answer."""
STALL_SECONDS = 4.0
"""Between two pieces of a body."""
MODEST_BYTES = 1 << 20
"""Real deliveries; a sender of many forged ones may send no larger ones."""
MEMORY_BYTES = 32 << 20
MEMORY_EACH_BYTES = 26 << 20
"""Of one address."""
_CLOSE = {"Connection": "close"}
"""The rest of the body is not read."""
_RETRY_LATER = {"Retry-After": "5", **_CLOSE}


class BufferedBody:
    """A body in memory."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.size_bytes = 0
        self.timeout: asyncio.Timeout | None = None
        """While it is being read."""
        self.evicted = False

    def evict(self) -> None:
        """Drop the body: its reader gets a time-out."""
        assert self.timeout is not None, "only what is being read gives way"
        self.evicted = True
        self.timeout.reschedule(asyncio.get_running_loop().time())
        self.timeout = None


class BodyMemory:
    """Memory that bodies may take at one time; one event loop alone uses it."""

    def __init__(self, size_bytes: int = MEMORY_BYTES, each_bytes: int = MEMORY_EACH_BYTES) -> None:
        self._size, self._each = size_bytes, each_bytes
        self._bodies: set[BufferedBody] = set()
        self._by_address: Counter[str] = Counter()

    @property
    def taken_bytes(self) -> int:
        """Bytes of all bodies in memory."""
        return self._by_address.total()

    def take(self, buffered: BufferedBody, size_bytes: int) -> None:
        """Count in the next piece of `buffered`; the caller of `take` calls `give_back`.

        Raises:
            RequestRefused: There is no room, and no larger body to drop.
        """
        self._bodies.add(buffered)
        buffered.size_bytes += size_bytes
        self._by_address[buffered.address] += size_bytes
        while self._by_address[buffered.address] > self._each or self.taken_bytes > self._size:
            largest = self._largest(buffered)
            if largest is buffered:
                raise RequestRefused(503, "many large bodies are being read; retry in 5 s", _RETRY_LATER)
            self.give_back(largest)
            largest.evict()

    def give_back(self, buffered: BufferedBody) -> None:
        """Free what a body takes; a second call does nothing."""
        self._bodies.discard(buffered)
        self._by_address[buffered.address] -= buffered.size_bytes
        if self._by_address[buffered.address] <= 0:
            del self._by_address[buffered.address]
        buffered.size_bytes = 0

    def _largest(self, buffered: BufferedBody) -> BufferedBody:
        """The body to drop for `buffered`, of its own address where that has too much; itself where none can be."""
        is_own = self._by_address[buffered.address] > self._each
        candidates = [
            each for each in self._bodies if each.timeout and (not is_own or each.address == buffered.address)
        ]
        return max([buffered, *candidates], key=lambda each: (self._by_address[each.address], each.size_bytes))


@asynccontextmanager
async def bounded_body(
    request: Request, body_memory: BodyMemory, *, limit: int = MAX_BYTES, seconds: float | None = None
) -> AsyncIterator[bytes]:
    """The whole body, however it is sent; its room is given back when the block ends.

    `seconds` are those in which it arrives; None: as many as a forge waits.

    Raises:
        RequestRefused: 413 larger than `limit`, 408 not here in time, 400 cut off, 503 no room.
    """
    _check_length(request.headers.get("content-length"), limit)
    buffered = BufferedBody(peer_address(request))
    try:
        yield await _read(request, body_memory, buffered, limit, READ_SECONDS if seconds is None else seconds)
    finally:
        body_memory.give_back(buffered)


async def _read(request: Request, body_memory: BodyMemory, buffered: BufferedBody, limit: int, seconds: float) -> bytes:
    clock = asyncio.get_running_loop().time
    ends = clock() + seconds
    size, pieces = 0, list[bytes]()  # in pieces: one block that grows leaves holes of its size
    try:
        async with asyncio.timeout_at(min(ends, clock() + STALL_SECONDS)) as buffered.timeout:
            while True:
                message = await request.receive()
                if message["type"] == "http.disconnect":
                    raise RequestRefused(400, "the request ended before its body did")
                piece = message.get("body", b"")
                size += len(piece)
                if size > limit:
                    raise _too_large(limit)
                body_memory.take(buffered, len(piece))
                pieces.append(piece)
                if not message.get("more_body"):
                    return b"".join(pieces)
                if buffered.timeout is not None:
                    buffered.timeout.reschedule(min(ends, clock() + STALL_SECONDS))
    except TimeoutError:
        if buffered.evicted:
            raise RequestRefused(
                503, "this body was dropped to make room for others; retry in 5 s", _RETRY_LATER
            ) from None
        raise RequestRefused(408, f"the body did not arrive within {seconds:.0f} s, or stopped", _CLOSE) from None
    finally:
        buffered.timeout = None


def _check_length(value: str | None, limit: int) -> None:
    if value is None:
        return
    if not (value.isascii() and value.isdecimal()):
        raise RequestRefused(400, "wanted a number of bytes as Content-Length", _CLOSE)
    if len(value) > 12 or int(value) > limit:
        raise _too_large(limit)


def _too_large(limit: int) -> RequestRefused:
    text = f"{limit >> 20} MiB" if limit >= 1 << 20 else f"{limit} bytes"
    return RequestRefused(413, f"wanted at most {text}", _CLOSE)
