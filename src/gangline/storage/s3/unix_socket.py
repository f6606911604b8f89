"""Connections to an S3 server through a Unix socket, for a sandbox that has no other network."""

import os
import socket

from gangline.http.connections import Dial, direct

FOLDER_VARIABLE = "GANGLINE_STORE_SOCKET"
SOCKET = "store"
"""Its name in that folder."""


def dial_store() -> Dial:
    """How this process reaches the store's server: directly, or by the socket in `$GANGLINE_STORE_SOCKET`."""
    return _dial_socket if os.environ.get(FOLDER_VARIABLE) else direct


def _dial_socket(_host: str, _port: int, seconds: float | None) -> socket.socket:
    made = socket.socket(socket.AF_UNIX)
    made.settimeout(seconds)
    try:
        folder = os.open(os.environ[FOLDER_VARIABLE], os.O_RDONLY | os.O_DIRECTORY)
        try:
            made.connect(f"/proc/self/fd/{folder}/{SOCKET}")  # a path of a socket is short
        finally:
            os.close(folder)
    except OSError as error:
        made.close()
        raise OSError(f"the way out of the sandbox is closed: {error}") from error
    return made
