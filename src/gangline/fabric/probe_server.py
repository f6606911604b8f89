"""TCP server of a probe listener: a thread for each connection, and few connections that have not signed a request."""

import socket
import socketserver
import threading
from contextlib import suppress
from typing import Any

MOST_UNSIGNED = 64
"""Connections at the same time that have not signed a request; one that knows the secret needs milliseconds to."""


class ProbeServer(socketserver.ThreadingTCPServer):
    """Server in which the oldest connection without a signed request gives way to a new one."""

    allow_reuse_address = True
    daemon_threads = True

    def __init__(
        self, address: tuple[str, int], handler: type[socketserver.BaseRequestHandler], *, secret: bytes
    ) -> None:
        self.secret = secret
        self._unsigned: dict[socket.socket, None] = {}
        self._lock = threading.Lock()
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        super().__init__(address, handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Start the thread of a new connection, and end the oldest one above the limit."""
        with self._lock:
            self._unsigned[request] = None
            oldest = next(iter(self._unsigned)) if len(self._unsigned) > MOST_UNSIGNED else None
        if oldest is not None:
            self.admit(oldest)
            with suppress(OSError):  # its thread ends with it
                oldest.shutdown(socket.SHUT_RDWR)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Close a connection."""
        self.admit(request)
        super().shutdown_request(request)

    def admit(self, connection: socket.socket) -> None:
        """Take the connection out of those that have not signed a request."""
        with self._lock:
            self._unsigned.pop(connection, None)
