"""Servers of a network and the groups that they hang in. Pure."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from gangline.errors import ConfigError
from gangline.spec.codec import Document, digest
from gangline.spec.config.fabric import FailureRates, PathPolicy

Scale = Literal["small", "middle", "large", "super-large"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Group:
    """Servers that hang on the same leaf switches."""

    name: str
    servers: tuple[str, ...]
    """Servers in order of position."""
    block: str = ""
    """Groups that one spine joins; empty: not known."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Fabric(Document):
    """A network of servers with equal NICs; what is None is not known.

    Raises:
        ConfigError: A server or a group is named twice, or a number is out of its range.
    """

    groups: tuple[Group, ...] = ()
    rails: int = 8
    """NICs and GPUs of a server; NIC i of every server of a group hangs on leaf i of it."""
    dual_homed: bool = False
    """Every NIC hangs on two leaves."""
    nic_bytes_per_second: float | None = None
    """Line rate of one NIC."""
    nic_bus_efficiency: float = 0.80
    """Share of that rate which arrives as bus bandwidth on an idle network."""
    intra_bus_bytes_per_second: float | None = None
    """Bus bandwidth between the GPUs of a server, of one GPU."""
    nic_latency_seconds: float | None = None
    """Latency from one rank to the next on another server."""
    intra_latency_seconds: float | None = None
    """Latency from one rank to the next of a server."""
    leaf_uplinks: int | None = None
    """Ports of a leaf towards the spines."""
    path_policy: PathPolicy = "unknown"
    connections: int = 1
    """Connections that each flow is split over."""
    failures: str | FailureRates = "llama3"
    """Name of a preset of `fabric.reliability.failures`, or rates."""

    def __post_init__(self) -> None:
        for problem in _problems(self):
            raise ConfigError(problem)

    @property
    def digest(self) -> str:
        """SHA-256 of its canonical JSON."""
        return digest(self)

    @property
    def servers(self) -> tuple[str, ...]:
        """Servers of all groups, in their order."""
        return tuple(server for group in self.groups for server in group.servers)

    @property
    def num_gpus(self) -> int:
        """GPUs of all servers."""
        return self.rails * sum(len(group.servers) for group in self.groups)

    @property
    def by_server(self) -> dict[str, Group]:
        """The group of each server; build it once where many are looked up."""
        return {server: group for group in self.groups for server in group.servers}


def scale_of(gpus: int) -> Scale:
    """Size of a run in words: below 100 GPUs, up to 1,000, up to 10,000, above."""
    if gpus < 100:
        return "small"
    if gpus <= 1000:
        return "middle"
    return "large" if gpus <= 10_000 else "super-large"


def _problems(fabric: Fabric) -> Iterator[str]:
    least = {"rails": fabric.rails, "connections": fabric.connections, "leaf_uplinks": fabric.leaf_uplinks}
    for name, count in least.items():
        if count is not None and count < 1:
            yield f"{name} of a fabric is at least 1, found {count}"
    if not 0 < fabric.nic_bus_efficiency <= 1:
        yield f"nic_bus_efficiency of a fabric is a share in (0, 1], found {fabric.nic_bus_efficiency:g}"
    speeds = {"nic": fabric.nic_bytes_per_second, "intra_bus": fabric.intra_bus_bytes_per_second}
    for name, speed in speeds.items():
        if speed is not None and speed <= 0:
            yield f"{name}_bytes_per_second of a fabric is above 0, found {speed:g}"
    named: dict[str, str] = {}
    if len({group.name for group in fabric.groups}) < len(fabric.groups):
        yield f"groups of a fabric have names of their own, found {[group.name for group in fabric.groups][:8]}"
    for group in fabric.groups:
        for server in group.servers:
            if server in named:
                yield f"wanted each server in one group, found {server} in {named[server]} and in {group.name}"
            named[server] = group.name


@lru_cache(maxsize=65_536)
def natural_key(name: str) -> tuple[object, ...]:
    """Sort key that puts `a-2` before `a-10`."""
    return tuple((0, int(part), "") if part.isdecimal() else (1, 0, part) for part in re.split(r"(\d+)", name))
