"""Limits on request bodies: bytes, seconds, and memory of all bodies together.

Where memory runs out, bodies that are still being read give way: of the address that has most in memory, the largest.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Literal

from starlette.requests import ClientDisconnect, Request

from gangline.serve.web.client_address import peer_address
from gangline.serve.web.responses import RETRY_SECONDS, RequestRefused

MAX_BYTES = 25 << 20
READ_SECONDS = 10.0
"""Longest time that a forge waits for an answer."""
MODEST_BYTES = 1 << 20
"""Limit of a sender of many forged deliveries; real ones are smaller."""
MEMORY_BYTES = 32 << 20
_CLOSE = {"Connection": "close"}
"""Header of a refusal that leaves the rest of a body unread."""


@dataclass(eq=False, slots=True)
class BufferedBody:
    """A body in memory."""

    address: str
    timeout: asyncio.Timeout
    size_bytes: int = 0
    state: Literal["reading", "whole", "evicted"] = "reading"


class BodyMemory:
    """Memory that bodies may take at one time; one event loop alone uses it."""

    def __init__(self, size_bytes: int = MEMORY_BYTES) -> None:
        self._size_bytes = size_bytes
        self._bodies: set[BufferedBody] = set()
        self.taken_bytes = 0

    def take(self, body: BufferedBody, size_bytes: int) -> None:
        """Count in the next piece of `body`, which may have to give way itself; the caller calls `give_back`."""
        self._bodies.add(body)
        body.size_bytes += size_bytes
        self.taken_bytes += size_bytes
        if self.taken_bytes > self._size_bytes:
            self._make_room()

    def give_back(self, body: BufferedBody) -> None:
        """Free what a body takes; a second call does nothing."""
        self._bodies.discard(body)
        self.taken_bytes -= body.size_bytes
        body.size_bytes = 0

    def _make_room(self) -> None:
        """Evict bodies until a quarter is free: looked for once, where many small ones come at the same time."""
        held: Counter[str] = Counter()
        for body in self._bodies:
            held[body.address] += body.size_bytes
        reading = [
            buffered_body
            for buffered_body in self._bodies
            if buffered_body.state == "reading" and not buffered_body.timeout.expired()
        ]
        for body in sorted(reading, key=lambda body: (held[body.address], body.size_bytes), reverse=True):
            if self.taken_bytes <= self._size_bytes * 3 // 4:
                return
            body.state = "evicted"
            body.timeout.reschedule(0)
            self.give_back(body)


@asynccontextmanager
async def bounded_body(
    request: Request, body_memory: BodyMemory, *, limit: int = MAX_BYTES, seconds: float | None = None
) -> AsyncIterator[bytes]:
    """The whole body, however it is sent; its memory is given back when the block ends.

    It has to arrive within `seconds`; None: within those that a forge waits.

    Raises:
        RequestRefused: 413 larger than `limit`, 408 not here in time, 400 cut off, 503 no room.
    """
    body = BufferedBody(peer_address(request), asyncio.timeout(READ_SECONDS if seconds is None else seconds))
    try:
        yield await _read(request, body_memory, body, limit)
    finally:
        body_memory.give_back(body)


async def _read(request: Request, body_memory: BodyMemory, body: BufferedBody, limit: int) -> bytes:
    too_large = RequestRefused(413, f"wanted at most {limit:,} bytes", _CLOSE)
    if int(request.headers.get("content-length", 0)) > limit:
        raise too_large
    size_bytes, pieces = 0, list[bytes]()  # in pieces: one block that grows leaves holes of its size
    try:
        async with body.timeout:
            async for piece in request.stream():
                size_bytes += len(piece)
                if size_bytes > limit:
                    raise too_large
                body_memory.take(body, len(piece))
                pieces.append(piece)
    except ClientDisconnect:
        raise RequestRefused(400, "the request ended before its body did") from None
    except TimeoutError:
        if body.state != "evicted":
            raise RequestRefused(408, "the body did not arrive in time", _CLOSE) from None
    if body.state == "evicted":  # also with its last piece, when nothing is waited for any more
        detail = "this body was dropped to make room for others; retry in 5 s"
        raise RequestRefused(503, detail, {"Retry-After": RETRY_SECONDS, **_CLOSE})
    body.state = "whole"
    return b"".join(pieces)
