"""A urllib3 pool that dials checked addresses only, for image registries and pipeline servers.

The check is where a connection opens its socket, below TLS and HTTP: no URL, also none from an answer, gets around it,
and the name is resolved once. Certificates are verified against the name.
"""

import socket
from collections.abc import Callable
from typing import Any

import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.exceptions import ConnectTimeoutError, NewConnectionError
from urllib3.util.connection import create_connection

from gangline.errors import StorageError
from gangline.http.address_check import Origin, Resolve, checked_addresses, is_loopback_name, system_resolve


def checked_pool(
    host: str, *, named_by_site: bool, resolve: Resolve | None = None, **options: Any
) -> urllib3.PoolManager:
    """A pool manager whose requests raise ConfigError, unsent, where a name leads to an address that is not for them.

    Args:
        host: The server, without its port. What its answers lead to is this machine only where it is itself.
        named_by_site: The site names it: it, and what its answers lead to, may be on a private network.
        resolve: Addresses of a name; None: as the system says.
        options: Of urllib3's PoolManager.
    """
    at_home = is_loopback_name(host)

    def dial(connection: HTTPConnection) -> socket.socket:
        is_ours = named_by_site and (at_home or not is_loopback_name(connection.host))
        origin = Origin("https", connection.host, connection.port, "", is_ours)
        return _dial(connection, origin, resolve or system_resolve)

    manager = urllib3.PoolManager(**options)
    manager.pool_classes_by_scheme = {
        "http": _pool_of(HTTPConnectionPool, HTTPConnection, dial),
        "https": _pool_of(HTTPSConnectionPool, HTTPSConnection, dial),
    }
    return manager


def _pool_of(pool: type[Any], connection: type[Any], dial: Callable[[HTTPConnection], socket.socket]) -> type[Any]:
    """`pool` with connections that open their socket by `dial`."""
    checked = type(f"Checked{connection.__name__}", (connection,), {"_new_conn": dial})
    return type(f"Checked{pool.__name__}", (pool,), {"ConnectionCls": checked})


def _dial(connection: HTTPConnection, origin: Origin, resolve: Resolve) -> socket.socket:
    try:
        addresses = checked_addresses(origin, resolve)
    except StorageError as error:  # as urllib3 says it: callers try again
        raise NewConnectionError(connection, str(error)) from error
    trouble: OSError | None = None
    for address in addresses:
        try:
            place = (address, connection.port)
            return create_connection(place, connection.timeout, socket_options=connection.socket_options)
        except OSError as error:
            trouble = error
    if isinstance(trouble, TimeoutError):
        raise ConnectTimeoutError(connection, f"{origin.host} did not answer in time") from trouble
    raise NewConnectionError(connection, f"{origin.host} cannot be reached: {trouble}") from trouble
