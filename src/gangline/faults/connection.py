"""One connection of a fault proxy: its two ends, the faults on it, and where its HTTP requests begin."""

import asyncio
import re
import socket
import struct
from contextlib import suppress
from dataclasses import dataclass, field

from gangline.faults.rules import Direction, FaultRule

_MAX_HEAD_BYTES = 65536
_METHOD = re.compile(rb"[A-Z]{1,16} ")
_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*(\d+)", re.IGNORECASE)
_END = b"\r\n\r\n"


class RequestMeter:
    """Finds the starts of HTTP requests in one connection; other data, or data of unknown length, is one request."""

    def __init__(self) -> None:
        self._head = b""
        self._body_left = 0
        self._is_opaque = False

    def starts(self, chunk: bytes) -> list[int]:
        """Offsets in `chunk`, the next bytes of the connection, at which a request begins."""
        found = []
        at = 0
        while at < len(chunk):
            if self._is_opaque:
                break
            if self._body_left:
                step = min(self._body_left, len(chunk) - at)
                self._body_left -= step
                at += step
                continue
            if not self._head:
                found.append(at)
            at += self._take_head(chunk[at:])
        return found

    def _take_head(self, rest: bytes) -> int:
        """Read `rest` up to the end of the head; returns how many bytes that took."""
        known = len(self._head)
        text = self._head + rest
        end = text.find(_END)
        if end < 0:
            self._head = text
            self._is_opaque = len(text) > _MAX_HEAD_BYTES or (len(text) > 16 and not _METHOD.match(text))
            return len(rest)
        head = text[: end + len(_END)]
        length = _LENGTH.search(head)
        self._head, self._body_left = b"", int(length[1]) if length else 0
        self._is_opaque = not _METHOD.match(head) or b"\r\ntransfer-encoding:" in head.lower()
        return len(head) - known


_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


@dataclass(eq=False)
class Connection:
    """One client connection through the proxy, and the faults in force on it."""

    number: int
    client: asyncio.StreamWriter
    server: asyncio.StreamWriter | None = None
    meter: RequestMeter = field(default_factory=RequestMeter)
    request: int = 0
    pending: list[FaultRule] = field(default_factory=list)
    """Rules that apply when the answer begins."""
    rate: dict[Direction, float] = field(default_factory=dict)
    deaf: set[Direction] = field(default_factory=set)

    def is_deaf(self, direction: Direction) -> bool:
        """Whether bytes in this direction are dropped."""
        return direction in self.deaf

    async def answer(self, rule: FaultRule) -> None:
        """Answer in place of the server; all further bytes of both sides are dropped."""
        self.deaf |= {"up", "down"}
        head = [f"HTTP/1.1 {rule.status} Fault Injected", "Content-Length: 0", "Connection: close"]
        if rule.retry_after_seconds is not None:
            head.append(f"Retry-After: {rule.retry_after_seconds}")
        self.client.write("\r\n".join([*head, "", ""]).encode())
        await self.client.drain()

    def reset(self) -> None:
        """Close both sides with a TCP reset."""
        for writer in filter(None, (self.client, self.server)):
            raw = writer.get_extra_info("socket")
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
            writer.transport.abort()

    def close(self) -> None:
        for writer in filter(None, (self.client, self.server)):
            with suppress(RuntimeError):  # the loop is closing
                writer.close()
