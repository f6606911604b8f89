"""Connections of the server: a client that owes a request is waited for a bounded time, and less where room is needed.

Where connections are too many, an eighth of those that wait for their client gives way: of the addresses that have most
first, and there those that have waited longest. So a client that has few and asks at once is answered, whatever others
hold. `body_limits` bounds bodies; the kernel cuts off a client that reads no answer (`server.bind`).
"""

import socket
import struct
from collections import Counter
from collections.abc import Collection
from http import HTTPStatus
from typing import Any, cast

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from gangline.serve.web.client_address import budget_key
from gangline.serve.web.responses import RequestRefused, problem

HEAD_SECONDS = 10.0
"""Longest time from a new connection to the end of its first request's head."""
IDLE_SECONDS = 30
"""Longest time from an answer to the end of the next request's head."""
FEW = 16
"""Waiting connections of an address that count like one of another address."""
READ_BYTES = 8 << 10
"""Most that asyncio reads of a connection at once: what all of them send at the same time fits into memory."""
LOOK_SECONDS = 1.0
"""Time between two looks at whether a request is late."""
_LINGER_ZERO = struct.pack("ii", 1, 0)


class HttpConnection(H11Protocol):
    """HTTP/1.1 connection of uvicorn that knows since when it waits for its client."""

    limit: int
    since = 0.0
    """Time of the loop at which it was opened, or the last request was answered."""
    place = 0
    """Number among the waiting connections of its address, the newest first, in steps of `FEW`."""

    def connection_made(self, transport: Any) -> None:
        """Begin to wait; other connections give way if there are too many."""
        super().connection_made(transport)
        transport.max_size = READ_BYTES
        self.since = self.loop.time()
        if self.client:  # a socket of both families shows clients of IPv4 as addresses of IPv6
            self.client = (self.client[0].removeprefix("::ffff:"), self.client[1])
        self._late = self.loop.call_later(HEAD_SECONDS, self._close_late)
        if len(self.connections) > self.limit:
            make_room(cast("set[HttpConnection]", self.connections))

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection at once: a timer would keep it, and what was read of it, until its time."""
        super().connection_lost(exc)
        self._late.cancel()
        self._unset_keepalive_if_required()

    def on_response_complete(self) -> None:
        """Begin to wait for the next request."""
        self.since = self.loop.time()
        super().on_response_complete()

    @property
    def is_idle(self) -> bool:
        """Whether no request is being answered."""
        return self.cycle is None or self.cycle.response_complete

    @property
    def is_waiting(self) -> bool:
        """Whether the client owes a request, or the rest of its body."""
        return self.is_idle or self.conn.their_state is h11.SEND_BODY

    @property
    def address(self) -> str:
        """Key of the client's budgets; behind a proxy the client of the last request."""
        client = self.scope["client"] if self.scope else self.client
        return budget_key(client[0] if client else "")

    def give_way(self) -> None:
        """Close at once; the kernel, too, forgets what the client has not read."""
        self.connections.discard(self)
        if self.transport.get_write_buffer_size():
            self.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_ZERO)
        self.transport.abort()

    def _close_late(self) -> None:
        """Close it if its next request is late, else look again."""
        limit = HEAD_SECONDS if self.cycle is None else IDLE_SECONDS
        if self.is_idle and self.loop.time() - self.since >= limit:
            self.timeout_keep_alive_handler()
        elif not self.transport.is_closing():
            self._late = self.loop.call_later(LOOK_SECONDS, self._close_late)

    def send_400_response(self, msg: str) -> None:
        """Refuse what is not HTTP as the API refuses: no application sees such a request."""
        refused = problem(RequestRefused(HTTPStatus.BAD_REQUEST, msg), page=False)
        head = h11.Response(status_code=400, headers=[*refused.raw_headers, (b"connection", b"close")])
        for event in (head, h11.Data(data=bytes(refused.body)), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event))
        self.transport.close()


def make_room(connections: Collection[HttpConnection]) -> None:
    """Close an eighth of the connections that wait for their client, one at least."""
    held: Counter[str] = Counter()
    waiting = [connection for connection in connections if connection.is_waiting]
    waiting.sort(key=lambda connection: connection.since, reverse=True)
    for connection in waiting:
        held[connection.address] += 1
        connection.place = held[connection.address] // FEW
    in_turn = sorted(waiting, key=lambda connection: (connection.place, -connection.since), reverse=True)
    for connection in in_turn[: max(1, len(waiting) // 8)]:
        connection.give_way()
