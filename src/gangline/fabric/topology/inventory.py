"""Servers of a network and the groups that they hang in. Pure."""

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

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
    """A network of servers with equal NICs, as `fabric.toml` states it after its rules; what is None is not known."""

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


@lru_cache(maxsize=65_536)
def natural_key(name: str) -> tuple[object, ...]:
    """Sort key that puts `a-2` before `a-10`."""
    return tuple((0, int(part), "") if part.isdecimal() else (1, 0, part) for part in re.split(r"(\d+)", name))
