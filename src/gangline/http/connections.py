"""Connections below urllib3: which address they dial, and that no read or write outlasts the request's deadline.

Addresses are checked where a connection opens its socket, below TLS and HTTP: no URL, also none from an answer, gets
around the check, and the name is resolved once. Certificates are verified against the name.
"""

import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.exceptions import ConnectTimeoutError, NewConnectionError
from urllib3.util.ssl_ import create_urllib3_context, resolve_cert_reqs

from gangline.errors import StorageError
from gangline.http.address_check import Origin, Resolve, checked_addresses, is_loopback_name, system_resolve
from gangline.http.retry import Deadline

Dial = Callable[[str, int, float | None], socket.socket]
"""Opens a connection to a host and port within so many seconds; raises OSError, or an error of gangline to end it."""
_SEND_BYTES = 1 << 18
_deadline: ContextVar[Deadline | None] = ContextVar("deadline", default=None)


def direct(host: str, port: int, seconds: float | None) -> socket.socket:
    """Dial what the system's resolver answers, unchecked: for servers that the site names."""
    return socket.create_connection((host, port), seconds)


def checked(host: str, *, named_by_site: bool, resolve: Resolve | None = None) -> Dial:
    """Dial addresses that an outgoing request may reach; another one is a ConfigError, and nothing is sent.

    Args:
        host: The server, without its port. What its answers lead to is this machine only where it is itself.
        named_by_site: The site names it: it, and what its answers lead to, may be on a private network.
        resolve: Addresses of a name; None: as the system says.
    """
    at_home = is_loopback_name(host)

    def dial(name: str, port: int, seconds: float | None) -> socket.socket:
        is_ours = named_by_site and (at_home or not is_loopback_name(name))
        addresses = _addresses(Origin("https", name, port, "", is_ours), resolve or system_resolve)
        failure: OSError | None = None
        for address in addresses:
            try:
                return socket.create_connection((address, port), seconds)
            except OSError as error:
                failure = error
        assert failure is not None
        raise failure

    return dial


def _addresses(origin: Origin, resolve: Resolve) -> list[str]:
    try:
        return checked_addresses(origin, resolve)
    except StorageError as error:  # worth another try
        raise OSError(str(error)) from error


@contextmanager
def ends_by(deadline: Deadline | None) -> Iterator[None]:
    """Reads and writes of this thread's connections raise TimeoutError once the deadline is over."""
    token = _deadline.set(deadline)
    try:
        yield
    finally:
        _deadline.reset(token)


def use_connections(manager: urllib3.PoolManager, dial: Dial) -> None:
    """Let the connections of `manager` open their sockets by `dial`, and end by the deadline of their request."""
    manager.pool_classes_by_scheme = {
        "http": _pool_class(HTTPConnectionPool, HTTPConnection, dial),
        "https": _pool_class(HTTPSConnectionPool, HTTPSConnection, dial),
    }


def _pool_class(pool: type[Any], connection: type[Any], dial: Dial) -> type[Any]:
    """`pool` with connections that open their socket by `dial`."""

    def connect(self: HTTPConnection) -> socket.socket:
        seconds = self.timeout if isinstance(self.timeout, int | float) else None
        try:
            opened = dial(self.host, self.port, seconds)
        except TimeoutError as error:
            raise ConnectTimeoutError(self, f"no connection to {self.host} in {seconds} s") from error
        except OSError as error:
            raise NewConnectionError(self, f"no connection to {self.host}: {error}") from error
        for option in self.socket_options or ():
            if opened.family in (socket.AF_INET, socket.AF_INET6):
                opened.setsockopt(*option)
        limited = _Socket(opened.family, opened.type, opened.proto, fileno=opened.detach())
        limited.settimeout(seconds)
        return limited

    members: dict[str, Any] = {"_new_conn": connect}
    if issubclass(connection, HTTPSConnection):
        members["connect"] = _connect_tls
    own = type(f"Own{connection.__name__}", (connection,), members)
    return type(f"Own{pool.__name__}", (pool,), {"ConnectionCls": own})


def _connect_tls(self: HTTPSConnection) -> None:
    """Connect by TLS with a context as urllib3 makes it, whose sockets are ours."""
    if self.ssl_context is None:
        context = create_urllib3_context(cert_reqs=resolve_cert_reqs(self.cert_reqs))
        if not (self.ca_certs or self.ca_cert_dir or self.ca_cert_data):
            context.load_default_certs()
        context.sslsocket_class = _TlsSocket
        self.ssl_context = context
    HTTPSConnection.connect(self)


class _EndsByDeadline:
    """Reads and writes with the timeout of the socket or what is left of the deadline, whichever is shorter."""

    def recv_into(self, *arguments: Any) -> int:
        with _shortened(self):
            return int(super().recv_into(*arguments))  # type: ignore[misc]  # a mixin of sockets

    def send(self, *arguments: Any) -> int:
        with _shortened(self):
            return int(super().send(*arguments))  # type: ignore[misc]  # as above

    def sendall(self, data: Any, *flags: int) -> None:
        """Piece by piece: the socket's timeout is of one piece, where that of `socket.sendall` is of all data."""
        with memoryview(data) as view, view.cast("B") as octets:
            for start in range(0, len(octets), _SEND_BYTES):
                with _shortened(self):
                    super().sendall(octets[start : start + _SEND_BYTES], *flags)  # type: ignore[misc]  # as above


class _Socket(_EndsByDeadline, socket.socket):
    pass


class _TlsSocket(_EndsByDeadline, ssl.SSLSocket):
    pass


@contextmanager
def _shortened(connection: Any) -> Iterator[None]:
    deadline, usual = _deadline.get(), connection.gettimeout()
    if deadline is None:
        yield
        return
    left_seconds = deadline.left_seconds()
    if left_seconds <= 0:
        raise TimeoutError("the whole answer took too long")
    connection.settimeout(left_seconds if usual is None else min(usual, left_seconds))
    try:
        yield
    finally:
        if connection.fileno() >= 0:
            connection.settimeout(usual)
