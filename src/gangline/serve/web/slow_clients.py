"""HTTP/1.1 protocol of uvicorn with time limits for slow clients: to send the head, and to read the response.

Every connection counts in `connection_limits`. `body_limits` bounds bodies.
"""

import asyncio
import socket
import struct
from http import HTTPStatus
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from gangline.serve.web.client_address import ClientAddresses
from gangline.serve.web.connection_limits import Connections
from gangline.serve.web.responses import RequestRefused, problem

HEAD_SECONDS = 10.0
"""From the first byte of a request, or the connection, to the end of its head."""
WRITE_SECONDS = 30.0
"""In which a client takes something of an answer that waits for it."""
_LINGER_ZERO = struct.pack("ii", 1, 0)


class TimedHttpProtocol(H11Protocol):
    """A connection whose next request does not arrive is closed: those that only hold a place leave it to others."""

    budget = Connections(ClientAddresses())
    """Of the server; each has a subclass with its own."""
    was_answered = False
    _head_timer: asyncio.TimerHandle | None = None
    _write_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Admit the connection, or close it if its address has too many."""
        super().connection_made(transport)
        if self.budget.admit(self, self._peer):
            self._start_head_timer()
        else:
            transport.abort()

    def data_received(self, data: bytes) -> None:
        """Count the data, and start or stop the timer of a request's head."""
        self.budget.touch(self, self._peer)
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            self._stop_head_timer()
        elif self._head_timer is None:
            self._start_head_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        """Give the connection back to the budget."""
        self.budget.remove(self, self._peer)
        self._stop_head_timer()
        self._stop_write_timer()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """The client takes no data: start the timer of its answer."""
        super().pause_writing()
        self._start_write_timer()

    def resume_writing(self) -> None:
        """The client takes data again."""
        super().resume_writing()
        self._stop_write_timer()

    def timeout_keep_alive_handler(self) -> None:
        """Close an idle connection; data that is left in its buffer gets the time of an answer."""
        super().timeout_keep_alive_handler()
        if self.transport.get_write_buffer_size():  # it closes once that is taken
            self._start_write_timer()

    def on_response_complete(self) -> None:
        """Called by uvicorn after the last byte of an answer was handed over."""
        self.was_answered = True
        super().on_response_complete()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is not HTTP as the API refuses: no application sees such a request."""
        refused = problem(RequestRefused(HTTPStatus.BAD_REQUEST, msg), page=False)
        headers = [*refused.raw_headers, (b"connection", b"close")]
        events = (
            h11.Response(status_code=refused.status_code, headers=headers),
            h11.Data(data=bytes(refused.body)),
            h11.EndOfMessage(),
        )
        for event in events:
            self.transport.write(self.conn.send(event))
        self.transport.close()

    @property
    def is_waiting(self) -> bool:
        """For its client: no request yet, or one whose body has not ended."""
        return self.conn.their_state in (h11.IDLE, h11.SEND_BODY)

    def evict(self) -> None:
        """It gives way to another; a client that has asked for nothing sees a connection that ends as others do."""
        if self.conn.their_state is h11.IDLE and not self.transport.get_write_buffer_size():
            self.transport.close()
        else:
            self._reset()

    @property
    def _peer(self) -> str:
        return self.client[0] if self.client else ""

    def _start_head_timer(self) -> None:
        self._head_timer = self.loop.call_later(HEAD_SECONDS, self.timeout_keep_alive_handler)

    def _start_write_timer(self) -> None:
        """Abort if the client reads nothing within the time limit; a client that reads slowly is kept."""
        self._stop_write_timer()
        left = self.transport.get_write_buffer_size()

        def check() -> None:
            if self.transport.get_write_buffer_size() >= left:
                self._reset()
            else:
                self._start_write_timer()

        self._write_timer = self.loop.call_later(WRITE_SECONDS, check)

    def _reset(self) -> None:
        """Abort now and discard what the kernel still buffers."""
        self.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_ZERO)
        self.transport.abort()

    def _stop_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _stop_write_timer(self) -> None:
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None
