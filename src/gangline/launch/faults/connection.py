"""One connection through a fault proxy: its two ends, what has struck it, and how it is broken off."""

import asyncio
import socket
import struct
from contextlib import suppress
from dataclasses import dataclass, field

from gangline.launch.faults.http_meter import RequestMeter
from gangline.launch.faults.rules import Direction, Rule

_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


@dataclass(eq=False)
class Connection:
    number: int
    client: asyncio.StreamWriter
    server: asyncio.StreamWriter | None = None
    meter: RequestMeter = field(default_factory=RequestMeter)
    request: int = 0
    pending: list[Rule] = field(default_factory=list)
    """Rules that strike when the answer begins."""
    rate: dict[Direction, float] = field(default_factory=dict)
    deaf: set[Direction] = field(default_factory=set)

    def is_deaf(self, direction: Direction) -> bool:
        return direction in self.deaf

    async def answer(self, rule: Rule) -> None:
        """Speak for the server; what either side says from now on is dropped."""
        self.deaf |= {"up", "down"}
        head = [f"HTTP/1.1 {rule.status} Fault Injected", "Content-Length: 0", "Connection: close"]
        if rule.retry_after_seconds is not None:
            head.append(f"Retry-After: {rule.retry_after_seconds}")
        self.client.write("\r\n".join([*head, "", ""]).encode())
        await self.client.drain()

    def reset(self) -> None:
        for writer in filter(None, (self.client, self.server)):
            raw = writer.get_extra_info("socket")
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
            writer.transport.abort()

    def close(self) -> None:
        for writer in filter(None, (self.client, self.server)):
            with suppress(RuntimeError):  # the loop is closing
                writer.close()
