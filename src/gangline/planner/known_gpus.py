"""Kinds of GPU that everybody knows: what their makers publish, what a plan assumes, and servers that are not here.

All figures are in `known_gpus.toml`.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, cast

from gangline.errors import ConfigError
from gangline.fabric.topology.inventory import Fabric
from gangline.spec.config.fabric import FailureRates, Preset
from gangline.spec.config.site import GpuTable, Site
from gangline.spec.devices import Devices, Inventory

LINK_RATES = frozenset({"link_bytes_per_second", "network_bytes_per_second"})

LINK_LATENCIES = frozenset({"link_latency_seconds", "network_latency_seconds"})


@dataclass(frozen=True, kw_only=True, slots=True)
class PublishedGpu:
    """Figures of one kind as its maker publishes them; nothing is known of what is left out."""

    source: str
    """Documents of the maker."""
    driver: str
    """Words that a driver's name of it has."""
    driver_lacks: str = ""
    """Words that such a name lacks."""
    memory_bytes: float | None = None
    """None: it is known by its driver's name alone, and cannot be asked for."""
    flops_per_second: Mapping[str, float] = field(default_factory=dict)
    """Peak by precision, dense; fp32 without tensor cores, 16 bits accumulated in 32."""
    memory_bytes_per_second: float | None = None
    link: str = ""
    """NVLink, PCIe, ...: what joins it to the others of its server."""
    link_bytes_per_second: float = 0.0
    """One way, all links of the device together."""
    nic_bytes_per_second: float = 0.0
    """Its share of the NICs of a usual server with eight of it: assumed, not published."""


@dataclass(frozen=True, kw_only=True, slots=True)
class KnownGpu(GpuTable):
    """A kind that no site describes: its rates are assumed shares of what is published."""

    published: PublishedGpu
    assumed: tuple[str, ...]
    """Keys whose values are assumed; those that a fabric states are not."""

    def with_links(self, stated: Mapping[str, float]) -> "KnownGpu":
        """The same kind on a network that is stated, by key."""
        changes: dict[str, Any] = {**stated, "assumed": tuple(key for key in self.assumed if key not in stated)}
        return replace(self, **changes)


def peak_of(name: str) -> PublishedGpu | None:
    """The kind that a driver calls `name`; None: not known here."""
    words = set(name.lower().replace("-", " ").replace("_", " ").split())
    kinds = _published().values()
    return next(
        (kind for kind in kinds if words >= set(kind.driver.split()) and not words & set(kind.driver_lacks.split())),
        None,
    )


def known_gpus() -> Mapping[str, KnownGpu]:
    """All kinds that can be asked for, by the name that they are asked for by."""
    return {name: _assumed(gpu) for name, gpu in _published().items() if gpu.memory_bytes is not None}


def assumptions() -> Mapping[str, float]:
    """What plans assume of all kinds, by key of `[gpu.NAME]`: shares of the published rates, and latencies."""
    return _table()["assumed"]  # type: ignore[no-any-return]  # values of TOML


def _assumed(kind: PublishedGpu) -> KnownGpu:
    share = assumptions()
    assert kind.memory_bytes is not None
    assert kind.memory_bytes_per_second is not None, "the table has the rates of each kind with a memory"
    return KnownGpu(
        memory_bytes=kind.memory_bytes,
        flops_per_second={name: rate * share["flops_per_second"] for name, rate in kind.flops_per_second.items()},
        memory_bytes_per_second=kind.memory_bytes_per_second * share["memory_bytes_per_second"],
        link_bytes_per_second=kind.link_bytes_per_second * share["link_bytes_per_second"],
        network_bytes_per_second=kind.nic_bytes_per_second * share["network_bytes_per_second"],
        **{name: share[name] for name in LINK_LATENCIES},
        published=kind,
        assumed=tuple(share),
    )


@cache
def _published() -> Mapping[str, PublishedGpu]:
    return {name: PublishedGpu(**each) for name, each in _table()["gpu"].items()}


@cache
def _table() -> dict[str, Any]:
    return tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))


MOST_GPUS = 10_000_000

GPUS_A_SERVER = 8
"""Where no fabric says otherwise."""

ORIGIN = "asked for"


def with_known_gpus(site: Site, wanted: str) -> Site:
    """`site` with the built-in kinds that `wanted` names, as `h100:64`; those that the site describes stay."""
    known = known_gpus()
    names = (_spelled(site, part.rpartition(":")[0]) for part in wanted.split(","))
    return replace(site, gpu={**{name: known[name] for name in names if name in known}, **site.gpu})


def hypothetical_inventory(site: Site, wanted: str, *, gpus_a_server: int = GPUS_A_SERVER) -> Inventory:
    """Servers that hold the GPUs of `wanted`: `16` where the site describes one kind, else `a100:16`; of several
    `h100:16,a100:16`.

    Raises:
        ConfigError: No number, a kind that is not known, or GPUs that leave a server half empty.
    """
    first, *others = (_of_kind(site, part, gpus_a_server) for part in wanted.split(","))
    names = [inventory.gpus.name for inventory in (first, *others) if inventory.gpus]
    if len(set(names)) < len(names):
        raise ConfigError(f"--gpus: wanted each kind of GPU once, found {', '.join(names)}; add their numbers up")
    return replace(first, others=tuple(others))


def _of_kind(site: Site, wanted: str, gpus_a_server: int) -> Inventory:
    kind, _, text = wanted.rpartition(":")
    if not text.isdecimal() or len(text) > len(str(MOST_GPUS)) or not 1 <= int(text) <= MOST_GPUS:
        raise ConfigError(
            f"--gpus: wanted a number of GPUs up to {MOST_GPUS:,}, or NAME:NUMBER, found {wanted[:40]!r}; h100:16 works"
        )
    name, table = _table_of(site, kind, int(text))
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


def _table_of(site: Site, kind: str, count: int) -> tuple[str, GpuTable]:
    name = _spelled(site, kind)
    if name in site.gpu:
        return name, site.gpu[name]
    own = [name for name, table in site.gpu.items() if not isinstance(table, KnownGpu)]
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
    gpu = known_gpus().get(kind.lower())
    same = [name for name in site.gpu if name.lower() == kind.lower()]
    same += [name for name in site.gpu if gpu and peak_of(name) == gpu.published]
    return same[0] if same else kind.lower()


def with_network(site: Site, network: Fabric) -> Site:
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
        name: table.with_links(stated) if isinstance(table, KnownGpu) else replace(table, **stated)
        for name, table in site.gpu.items()
    }
    failures = cast(Preset | FailureRates, network.failures)
    if network.dual_homed and isinstance(failures, FailureRates):
        failures = replace(failures, leaf_hours=None)
    return replace(site, gpu=gpus, plan=replace(site.plan, failures=failures))
