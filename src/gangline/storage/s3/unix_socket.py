"""Connections to an S3 server through a Unix socket, for a sandbox that has no other network."""

import os
import socket
from pathlib import Path

from gangline.http.connections import Dial, direct

SOCKET = "store"
"""Name of the socket in its folder."""


def store_dial(folder: Path | None) -> Dial:
    """How the store's server is reached: through the socket in `folder`, or directly."""
    if folder is None:
        return direct
    return lambda _host, _port, seconds: _dial_socket(folder, seconds)


def _dial_socket(folder: Path, seconds: float | None) -> socket.socket:
    made = socket.socket(socket.AF_UNIX)
    made.settimeout(seconds)
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            made.connect(f"/proc/self/fd/{descriptor}/{SOCKET}")  # a path of a socket is short
        finally:
            os.close(descriptor)
    except OSError as error:
        made.close()
        raise OSError(f"the sandbox's socket to the store is closed: {error}") from error
    return made
