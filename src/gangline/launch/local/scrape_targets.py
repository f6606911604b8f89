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


def publish_targets(folder: Path, name: str, ports: range, **labels: str) -> None:
    """Write a target file for these ports; `labels` are added to every series scraped there."""
    group = {"targets": [f"{LOOPBACK}:{port}" for port in ports], "labels": labels}
    with suppress(OSError):
        write_file(folder / f"{name}.json", json.dumps([group], sort_keys=True).encode(), mode=0o644)


def remove_targets(folder: Path, name: str) -> None:
    """Remove the file of `name`, if any."""
    with suppress(OSError):
        (folder / f"{name}.json").unlink(missing_ok=True)


def remove_dead_targets(folder: Path, pattern: str) -> None:
    """Remove files of killed processes: those that match `pattern` and at whose ports no process listens.

    Only for processes that listen before they write their file.
    """
    for path in sorted(folder.glob(f"{pattern}.json")):
        ports = list(_ports(path))
        if ports and all(map(is_free, ports)):
            remove_targets(folder, path.stem)


def free_ports(folder: Path, base: int, count: int) -> range:
    """`count` consecutive free ports from `base` on that no file in `folder` names.

    Without such a range the result begins at `base`: a rank whose port is taken has no metrics, nothing else.
    """
    taken = {port for path in folder.glob("*.json") for port in _ports(path)}
    for first in range(base, 65_536 - count, count):
        ports = range(first, first + count)
        if taken.isdisjoint(ports) and all(map(is_free, ports)):
            return ports
    return range(base, base + count)


def is_free(port: int) -> bool:
    """Whether no process listens at this loopback port; a connection that just ended does not count."""
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
