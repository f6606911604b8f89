"""Kinds of GPU that everybody knows: what their makers publish, and the rates that a plan assumes of them.

All figures are in `known_gpus.toml`.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from gangline.spec.config.site import GpuTable

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
        (each for each in kinds if words >= set(each.driver.split()) and not words & set(each.driver_lacks.split())),
        None,
    )


def known_gpus() -> Mapping[str, KnownGpu]:
    """All kinds that can be asked for, by the name that they are asked for by."""
    return {name: _assumed(each) for name, each in _published().items() if each.memory_bytes is not None}


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
