"""A delivery's body, read within bounds before anybody looks into it: bytes, seconds, and memory of all together."""

import asyncio
import threading

from starlette.requests import Request

from gangline.serve.problems import Refused

MAX_BYTES = 25 << 20
READ_SECONDS = 10.0
"""Forges wait no longer for an answer."""
MODEST_BYTES = 1 << 20
"""Real deliveries; a sender of many forged ones may send no larger ones."""
ROOM_BYTES = 256 << 20


class Room:
    """Memory that bodies may take at one time, of everybody."""

    def __init__(self, size_bytes: int = ROOM_BYTES) -> None:
        self._left = size_bytes
        self._lock = threading.Lock()

    def take(self, size_bytes: int) -> None:
        """Raises Refused where there is no room now; whoever took some gives it back."""
        with self._lock:
            if size_bytes > self._left:
                raise Refused(503, "many large deliveries are being read; again in a moment", {"Retry-After": "5"})
            self._left -= size_bytes

    def give_back(self, size_bytes: int) -> None:
        with self._lock:
            self._left += size_bytes


async def read_body(request: Request, room: Room, *, most: int = MAX_BYTES) -> bytes:
    """The whole body, however it is sent.

    Raises:
        Refused: 413 larger than `most`, 408 not here in time, 400 cut off, 503 no room.
    """
    _check_length(request.headers.get("content-length"), most)
    taken = 0
    chunks: list[bytes] = []
    try:
        async with asyncio.timeout(READ_SECONDS):
            async for chunk in request.stream():
                if taken + len(chunk) > most:
                    raise _too_large(most)
                room.take(len(chunk))
                taken += len(chunk)
                chunks.append(chunk)
    except TimeoutError:
        raise Refused(408, f"the body did not arrive within {READ_SECONDS:.0f} s") from None
    finally:
        room.give_back(taken)
    return b"".join(chunks)


def _check_length(said: str | None, most: int) -> None:
    if said is None:
        return
    if not (said.isascii() and said.isdecimal()):
        raise Refused(400, "wanted a number of bytes as Content-Length")
    if len(said) > 12 or int(said) > most:
        raise _too_large(most)


def _too_large(most: int) -> Refused:
    return Refused(413, f"wanted at most {most >> 20} MiB", {"Connection": "close"})
