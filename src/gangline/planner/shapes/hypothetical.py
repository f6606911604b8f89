"""Devices that are not here: so many GPUs of a kind that is known, and the network of a fabric file."""

from dataclasses import replace
from typing import Any, Protocol, cast

from gangline.errors import ConfigError
from gangline.planner.shapes.known_gpus import KnownGpu, known_gpus, peak_of
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
        """Latency of a message between servers."""
        ...

    @property
    def intra_latency_seconds(self) -> float | None:
        """Latency of a message between the GPUs of a server."""
        ...

    @property
    def failures(self) -> str | FailureRates:
        """Name of published rates, or rates."""
        ...


def with_known_gpus(site: Site, wanted: str) -> Site:
    """`site` with the built-in kinds that `wanted` names, as `h100:64`; those that the site describes stay."""
    known = known_gpus()
    names = (_spelled(site, each.rpartition(":")[0]) for each in wanted.split(","))
    return replace(site, gpu={**{name: known[name] for name in names if name in known}, **site.gpu})


def hypothetical_inventory(site: Site, wanted: str, *, gpus_a_server: int = GPUS_A_SERVER) -> Inventory:
    """Servers that hold the GPUs of `wanted`: `16` where the site describes one kind, else `a100:16`; of several
    `h100:16,a100:16`.

    Raises:
        ConfigError: No number, a kind that is not known, or GPUs that leave a server half empty.
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
            f"--gpus: wanted a number of GPUs up to {MOST_GPUS:,}, or NAME:NUMBER, found {wanted[:40]!r}; h100:16 works"
        )
    name, table = _table(site, kind, int(text))
    count = int(text)
    if count > gpus_a_server and count % gpus_a_server:
        near = count // gpus_a_server * gpus_a_server
        works = f"{near} or {near + gpus_a_server} works"
        raise ConfigError(f"--gpus: wanted whole servers of {gpus_a_server} GPUs, found {count}; {works}")
    inside = min(count, gpus_a_server)
    has_bf16 = not isinstance(table, KnownGpu) or "bf16" in table.flops_per_second
    device = Devices(
        kind="cuda", name=name, memory_bytes=int(table.memory_bytes), count=inside, has_bf16=has_bf16
    )  # fmt: skip
    memory = int(table.host_memory_bytes or 0)  # what the site does not state is not planned with
    return Inventory(
        num_nodes=count // inside, cores=inside, memory_bytes=memory, devices=(device,), origin=ORIGIN
    )  # fmt: skip


def _table(site: Site, kind: str, count: int) -> tuple[str, GpuTable]:
    name = _spelled(site, kind)
    if name in site.gpu:
        return name, site.gpu[name]
    own = [name for name, each in site.gpu.items() if not isinstance(each, KnownGpu)]
    if not kind and len(own) == 1:
        return own[0], site.gpu[own[0]]
    raise ConfigError(
        f"--gpus: wanted a kind of GPU and their number, found {kind[:40] or 'no kind'}; "
        f"{own[0] if own else 'h100'}:{count} works. Built in: {', '.join(known_gpus())}; "
        f"[gpu.NAME] of site.toml: {', '.join(own) or 'none'}"
    )


def _spelled(site: Site, kind: str) -> str:
    """Name by which the site describes that kind, which may be its driver's; else that of a built-in kind."""
    if kind in site.gpu:
        return kind
    known = known_gpus().get(kind.lower())
    same = [name for name in site.gpu if name.lower() == kind.lower()]
    same += [name for name in site.gpu if known and peak_of(name) == known.published]
    return same[0] if same else kind.lower()


def with_network(site: Site, network: Network) -> Site:
    """`site` with the links of every GPU, and the failures, that `network` has; what it does not give stays."""
    nic = network.nic_bytes_per_second
    values = {
        "link_bytes_per_second": network.intra_bus_bytes_per_second,
        "network_bytes_per_second": None if nic is None else nic * network.nic_bus_efficiency,
        "link_latency_seconds": network.intra_latency_seconds,
        "network_latency_seconds": network.nic_latency_seconds,
    }
    stated: dict[str, Any] = {key: value for key, value in values.items() if value is not None}
    gpus = {
        name: each.with_links(stated) if isinstance(each, KnownGpu) else replace(each, **stated)
        for name, each in site.gpu.items()
    }
    failures = cast(Preset | FailureRates, network.failures)
    if network.dual_homed and isinstance(failures, FailureRates):
        failures = replace(failures, leaf_hours=None)
    return replace(site, gpu=gpus, plan=replace(site.plan, failures=failures))
