"""Scrape targets of this machine for Prometheus: one `file_sd` file for each gang or driver.

A file exists as long as a process listens at its addresses; one that was left behind costs a target that is down. A
folder that cannot be written costs targets, never a gang.
"""

import json
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from gangline.launch.local.folder import write_file

LOOPBACK = "127.0.0.1"


def announce(folder: Path, name: str, ports: range, **labels: str) -> None:
    """Say that the ports are served, under labels that every series found there gets."""
    group = {"targets": [f"{LOOPBACK}:{port}" for port in ports], "labels": labels}
    with suppress(OSError):
        write_file(folder / f"{name}.json", json.dumps([group], sort_keys=True).encode(), mode=0o644)


def withdraw(folder: Path, name: str) -> None:
    with suppress(OSError):
        (folder / f"{name}.json").unlink(missing_ok=True)


def withdraw_dead(folder: Path, pattern: str) -> None:
    """Remove what processes left behind that were killed: files of this kind at whose ports nobody listens any more.

    For those who listen before they announce.
    """
    for path in sorted(folder.glob(f"{pattern}.json")):
        ports = list(_ports(path))
        if ports and all(map(is_free, ports)):
            withdraw(folder, path.stem)


def free_ports(folder: Path, base: int, count: int) -> range:
    """`count` ports in a row, from `base` on, that nobody listens at and that no file there names.

    Where there is no such row `base` is answered: a port that is taken costs a rank its series, nothing else.
    """
    taken = {port for path in folder.glob("*.json") for port in _ports(path)}
    for first in range(base, 65_536 - count, count):
        ports = range(first, first + count)
        if taken.isdisjoint(ports) and all(map(is_free, ports)):
            return ports
    return range(base, base + count)


def is_free(port: int) -> bool:
    """Nobody listens there on loopback; a connection that just ended does not count."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


def _ports(path: Path) -> Iterator[int]:
    with suppress(OSError, ValueError, TypeError, KeyError):  # half gone, or not ours: its ports are tried instead
        for group in json.loads(path.read_bytes()):
            yield from (int(target.rpartition(":")[2]) for target in group["targets"])
