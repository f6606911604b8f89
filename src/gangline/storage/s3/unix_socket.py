"""Connections to an S3 server through a Unix socket, for a sandbox that has no other network."""

import os
import socket
from typing import Any

import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import NewConnectionError

FOLDER_VARIABLE = "GANGLINE_STORE_SOCKET"
SOCKET = "store"
"""Its name in that folder."""


def open_pool(**options: Any) -> urllib3.PoolManager:
    """A pool that reaches servers as this process does: directly, or by the socket."""
    pool = urllib3.PoolManager(**options)
    if os.environ.get(FOLDER_VARIABLE):
        pool.pool_classes_by_scheme = {"http": _Pool, "https": _TlsPool}
    return pool


class _ByTheSocket(HTTPConnection):
    def _new_conn(self) -> socket.socket:
        made = socket.socket(socket.AF_UNIX)
        made.settimeout(self.timeout if isinstance(self.timeout, int | float) else None)
        try:
            folder = os.open(os.environ[FOLDER_VARIABLE], os.O_RDONLY | os.O_DIRECTORY)
            try:
                made.connect(f"/proc/self/fd/{folder}/{SOCKET}")  # a path of a socket is short
            finally:
                os.close(folder)
        except OSError as error:
            made.close()
            raise NewConnectionError(self, f"the way out of the sandbox is closed: {error}") from error
        return made


class _TlsByTheSocket(_ByTheSocket, HTTPSConnection):
    pass


class _Pool(urllib3.HTTPConnectionPool):
    ConnectionCls = _ByTheSocket


class _TlsPool(urllib3.HTTPSConnectionPool):
    ConnectionCls = _TlsByTheSocket
