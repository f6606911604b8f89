"""Ports for programs that a test starts and that cannot say which port they took themselves."""

import random
import socket
from pathlib import Path

_EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")


def free_port() -> int:
    """A TCP port of 127.0.0.1 that is free now, below the range that the kernel takes connections and port 0 from."""
    above = int(_EPHEMERAL.read_text().split()[0]) if _EPHEMERAL.exists() else 32_768
    while True:
        port = random.randrange(above // 2, above)  # no secret
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port
