"""Connections to a forge: checked addresses only, and one deadline for a whole request.

It plugs into httpcore, the engine of httpx, below TLS and HTTP: neither a redirect nor a proxy variable nor a second
resolution of the name goes around it.
"""

import ssl
import time
from collections.abc import Iterable
from contextvars import ContextVar
from typing import Any

import httpcore

from gangline.errors import StorageError
from gangline.http.address_check import Origin, Resolve, checked_addresses

CONNECT_SECONDS = 5.0
_DEADLINE: ContextVar[float] = ContextVar("deadline")
"""Of the request that this thread is in, by the monotonic clock."""


def start_deadline(seconds: float) -> None:
    """From now on this thread's reads, writes and connects end within `seconds`."""
    _DEADLINE.set(time.monotonic() + seconds)


def seconds_left() -> float:
    """Seconds to the deadline.

    Raises:
        httpcore.ReadTimeout: None are left.
    """
    seconds = _DEADLINE.get() - time.monotonic()
    if seconds <= 0:
        raise httpcore.ReadTimeout("the whole response took too long")
    return seconds


def open_pool(origin: Origin, resolve: Resolve) -> httpcore.ConnectionPool:
    """Connections to `origin` and to nothing else, one a request; TLS is verified against the system's authorities."""
    return httpcore.ConnectionPool(
        ssl_context=ssl.create_default_context(),
        max_connections=4,
        max_keepalive_connections=0,
        network_backend=CheckedBackend(origin, resolve),
    )


class CheckedBackend(httpcore.NetworkBackend):
    """Dials the addresses that were checked, and no other."""

    def __init__(self, origin: Origin, resolve: Resolve) -> None:
        self._origin = origin
        self._resolve = resolve
        self._sockets = httpcore.SyncBackend()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ARG002  # the deadline is stricter
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        """As httpcore calls it; to checked addresses of the one host, within the deadline."""
        assert (host, port) == (self._origin.host, self._origin.port), f"a request for {host}:{port}"
        trouble: Exception | None = None
        for address in checked_addresses(self._origin, self._resolve):
            seconds = min(CONNECT_SECONDS, seconds_left())
            try:
                stream = self._sockets.connect_tcp(address, port, seconds, local_address, socket_options)
                return DeadlineStream(stream)
            except (httpcore.NetworkError, httpcore.TimeoutException) as error:
                trouble = error
        raise StorageError(f"{self._origin.url} cannot be reached: {trouble}") from trouble


class DeadlineStream(httpcore.NetworkStream):
    """A stream whose every operation ends by the deadline of its request, however slowly bytes drip."""

    def __init__(self, stream: httpcore.NetworkStream) -> None:
        self._stream = stream

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._stream.read(max_bytes, _shorter(timeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._stream.write(buffer, _shorter(timeout))

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        """As httpcore calls it; the stream over TLS has the same deadline."""
        return DeadlineStream(self._stream.start_tls(ssl_context, server_hostname, _shorter(timeout)))

    def get_extra_info(self, info: str) -> Any:
        """As httpcore calls it."""
        return self._stream.get_extra_info(info)


def _shorter(timeout: float | None) -> float:
    return seconds_left() if timeout is None else min(timeout, seconds_left())
