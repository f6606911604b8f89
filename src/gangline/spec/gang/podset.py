"""PodSet and placement: what a launcher starts, and on which servers.

Launchers and the training runtime meet in this and in environment variables.
"""

from dataclasses import dataclass, field
from typing import Literal

from gangline.spec.codec import Document, digest
from gangline.spec.plan import Role


@dataclass(frozen=True, kw_only=True, slots=True)
class PlacedServer:
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

    servers: tuple[PlacedServer, ...]
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


@dataclass(frozen=True, kw_only=True, slots=True)
class Resources:
    """Of one node's pod. None: whatever the node gives."""

    cpus: float | None = None
    memory_bytes: int | None = None
    gpus: int = 0
    rdma: int = 0
    shm_bytes: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class PodSet(Document):
    """One gang, as data. Its digest is what adoption compares: the same question gives the same bytes."""

    schema: int = 1
    name: str
    """Gang name: the run id, with `-eval` or `-prove` for the other roles; RFC 1035, <= 42 characters."""
    run: str
    project: str
    commit: str
    role: Role = "train"
    num_nodes: int = 1
    procs_per_node: int
    image: str | None = None
    """By digest; None: the environment that runs gangline, or that of `python`."""
    python: str | None = None
    """Interpreter of ranks on this machine, the commit's own; None: that of gangline."""
    code: str
    """Store key of the code layer, `blobs/sha256/<digest>`: a ZIP of regular files."""
    plan: str
    """Store key of the plan, `blobs/sha256/<digest>`."""
    store: str
    """Store URL as `storage.open.open_store` reads it; no credentials."""
    command: tuple[str, ...] = ("python", "-m", "gangline.keeper.main")
    env: dict[str, str] = field(default_factory=dict)
    resources: Resources = Resources()
    queue: str | None = None
    priority: Literal["low", "normal", "high"] = "normal"
    pool: str | None = None
    placement: Placement | None = None
    """Which server gets which node; None: the launcher's placer, or the scheduler, decides."""
    deadline_seconds: float | None = None
    grace_seconds: float = 30.0
    metrics_port_base: int | None = None
    """First port of the ranks' metrics; None: they serve none."""
    secrets: tuple[str, ...] = ()
    """Names of references the launcher resolves into the pod, never values."""

    @property
    def world_size(self) -> int:
        """Ranks of all nodes."""
        return self.num_nodes * self.procs_per_node

    @property
    def digest(self) -> str:
        """SHA-256 of its canonical JSON; equal PodSets are one gang."""
        return digest(self)
