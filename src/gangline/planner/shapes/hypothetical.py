"""Devices that are not here: so many GPUs of the site's file, and the network of a fabric file. Pure."""

from dataclasses import replace
from typing import Protocol, cast

from gangline.errors import ConfigError
from gangline.spec.config.fabric import FailureRates, Preset
from gangline.spec.config.site import GpuTable, Site
from gangline.spec.devices import Devices, Inventory

MOST_GPUS = 10_000_000
GPUS_A_SERVER = 8
"""Where no fabric says otherwise."""
ORIGIN = "asked for"


class Network(Protocol):
    """What the planner needs of a fabric."""

    @property
    def rails(self) -> int:
        """GPUs of a server, each with a NIC."""
        ...

    @property
    def dual_homed(self) -> bool:
        """Every NIC hangs on two leaves: no leaf alone stops a gang."""
        ...

    @property
    def nic_bytes_per_second(self) -> float | None:
        """Line rate of one NIC."""
        ...

    @property
    def nic_bus_efficiency(self) -> float:
        """Share of that rate which arrives as bus bandwidth."""
        ...

    @property
    def intra_bus_bytes_per_second(self) -> float | None:
        """Bus bandwidth between the GPUs of a server."""
        ...

    @property
    def nic_latency_seconds(self) -> float | None:
        """Of a message between servers."""
        ...

    @property
    def intra_latency_seconds(self) -> float | None:
        """Of a message between the GPUs of a server."""
        ...

    @property
    def failures(self) -> str | FailureRates:
        """Name of published rates, or rates."""
        ...


def hypothetical_inventory(site: Site, wanted: str, *, gpus_a_server: int = GPUS_A_SERVER) -> Inventory:
    """Servers that hold the GPUs of `wanted`: `16`, or `a100:16` where the site describes several kinds; of several
    `h100:16,a100:16`.

    Raises:
        ConfigError: No number, a kind that the site does not describe, or GPUs that leave a server half empty.
    """
    first, *others = (_of_kind(site, each, gpus_a_server) for each in wanted.split(","))
    names = [each.gpus.name for each in (first, *others) if each.gpus]
    if len(set(names)) < len(names):
        raise ConfigError(f"--gpus: wanted each kind of GPU once, found {', '.join(names)}; add their numbers up")
    return replace(first, others=tuple(others))


def _of_kind(site: Site, wanted: str, gpus_a_server: int) -> Inventory:
    kind, _, text = wanted.rpartition(":")
    if not text.isdecimal() or len(text) > len(str(MOST_GPUS)) or not 1 <= int(text) <= MOST_GPUS:
        raise ConfigError(
            f"--gpus: wanted a number of GPUs up to {MOST_GPUS:,}, or NAME:NUMBER, found {wanted[:40]!r}; "
            "16 or a100:16 works"
        )
    name, table = _table(site, kind)
    count = int(text)
    if count > gpus_a_server and count % gpus_a_server:
        near = count // gpus_a_server * gpus_a_server
        works = f"{near} or {near + gpus_a_server} works"
        raise ConfigError(f"--gpus: wanted whole servers of {gpus_a_server} GPUs, found {count}; {works}")
    inside = min(count, gpus_a_server)
    device = Devices(kind="cuda", name=name, memory_bytes=int(table.memory_bytes), count=inside)
    memory = int(table.host_memory_bytes or 0)  # what the site does not state is not planned with
    return Inventory(
        num_nodes=count // inside, cores=inside, memory_bytes=memory, devices=(device,), origin=ORIGIN
    )  # fmt: skip


def _table(site: Site, kind: str) -> tuple[str, GpuTable]:
    if kind in site.gpu:
        return kind, site.gpu[kind]
    if not kind and len(site.gpu) == 1:
        return next(iter(site.gpu.items()))
    there = ", ".join(site.gpu) or "none"
    raise ConfigError(
        f"--gpus: wanted a kind of GPU that [gpu.NAME] of site.toml describes, found {kind or 'none named'}; "
        f"there: {there}"
    )


def with_network(site: Site, network: Network) -> Site:
    """`site` with the links of every GPU, and the failures, that `network` has; what it does not give stays."""
    nic = network.nic_bytes_per_second
    across = None if nic is None else nic * network.nic_bus_efficiency
    gpus = {
        name: replace(
            each,
            link_bytes_per_second=network.intra_bus_bytes_per_second or each.link_bytes_per_second,
            network_bytes_per_second=across or each.network_bytes_per_second,
            link_latency_seconds=_stated(network.intra_latency_seconds, each.link_latency_seconds),
            network_latency_seconds=_stated(network.nic_latency_seconds, each.network_latency_seconds),
        )
        for name, each in site.gpu.items()
    }
    failures = cast(Preset | FailureRates, network.failures)
    if network.dual_homed and isinstance(failures, FailureRates):
        failures = replace(failures, leaf_hours=None)
    return replace(site, gpu=gpus, plan=replace(site.plan, failures=failures))


def _stated(first: float | None, second: float | None) -> float | None:
    return second if first is None else first
