"""Placement: which server gets which node rank. All that a launcher learns of the fabric."""

from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True, slots=True)
class Server:
    """One server of a placement."""

    name: str
    """As the scheduler's host name label says it."""
    group: str = ""
    """Servers that one leaf switch joins; empty: not known."""
    block: str = ""
    """Groups that one spine joins; empty: not known."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Placement:
    """Servers in node-rank order: RANK = node rank x processes a node + local rank."""

    servers: tuple[Server, ...]
    devices_per_server: int
    tile: int = 1
    """Consecutive servers that must share a group; divides their number."""
    fabric: str = ""
    """Digest of the fabric it was computed on; empty: from labels alone."""
    labels: tuple[str, ...] = ()
    """Node labels that were relied on."""
    environment: dict[str, str] = field(default_factory=dict)
    """Variables that the fabric wants of every rank."""
    forecast_seconds: float | None = None
    """Of one step's communication in this order."""
