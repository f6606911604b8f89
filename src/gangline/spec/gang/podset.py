"""PodSet: what a launcher starts. Launchers and the training runtime meet in this and in environment variables.

The plan fixes how many pods there are, which of them must be near each other, their pool and their priority. Which
servers they get is decided when they start, by gangline's placer or by Kueue.
"""

from dataclasses import dataclass, field
from typing import Literal

from gangline.spec.codec import Document, digest
from gangline.spec.plan import Role

DEADLINE_KEY, SITE_DEADLINE = "GANGLINE_DEADLINE_KEY", "limits.run_seconds of site.toml"
"""Variable with the key that sets the deadline of a gang, and the key without it."""

TRACKERS_KEY = "GANGLINE_TRACKERS"
"""Variable with `KIND=URL` of each tracker that the program joins, set by the driver alone; ranks that do not write
there, and pods that may reach it, follow from it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PlacedServer:
    """One server with its position in the network."""

    name: str
    """Value of the scheduler's host name label."""
    group: str = ""
    """Servers that one leaf switch joins; empty: not known."""
    block: str = ""
    """Groups that one spine joins; empty: not known."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PipelineTraffic:
    """What the stages and replicas of a pipeline send each other in a step, by edge between two servers."""

    stages: int
    """Equal parts of the gang's nodes, in node-rank order."""
    data_edge_bytes: float
    """Bytes on each edge of the ring over the replicas of a stage."""
    stage_edge_bytes: float
    """Bytes between the same replica of neighbouring stages, both ways together."""
    expert_edge_bytes: float = 0.0
    """Bytes from each node of an expert group to each other one."""
    expert_nodes: int = 1
    """Neighbouring replicas of a stage that share their experts."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ServerKind:
    """Servers of a gang with one kind of GPU, where it has two."""

    num_nodes: int
    labels: dict[str, str]
    """Labels that every one of them must have."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Placement:
    """What the plan wants of the servers of a gang; it never names them."""

    tile: int = 1
    """Consecutive pods that must share a group, the servers on the same leaf switches; divides their number."""
    pipeline: PipelineTraffic | None = None
    """Traffic that decides the order of the servers; None: a ring goes over all of them."""
    labels: dict[str, str] = field(default_factory=dict)
    """Labels that every server must have: those of the plan's kind of GPU, where the cluster has several."""
    kinds: tuple[ServerKind, ...] = ()
    """Kinds of servers in node-rank order; empty: all are of one kind."""
    environment: dict[str, str] = field(default_factory=dict)
    """Variables that tell ranks the network as it was declared; a variable in `PodSet.env` wins."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Resources:
    """What one node's pod asks for. None: whatever the node gives."""

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
    """Image by digest; None: the environment that runs gangline, or that of `python`."""
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
    """Queued gangs of a higher priority start first."""
    pool: str | None = None
    """Only servers of this pool; None: only servers in no pool."""
    placement: Placement | None = None
    """None: any servers do."""
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
    def tile(self) -> int:
        """Consecutive pods that must share a group of servers."""
        return self.placement.tile if self.placement else 1

    @property
    def variables(self) -> dict[str, str]:
        """Variables of its ranks: those of the network, then `env`."""
        return (self.placement.environment if self.placement else {}) | self.env

    @property
    def deadline_key(self) -> str:
        """Key of a file that sets `deadline_seconds`."""
        return self.env.get(DEADLINE_KEY, SITE_DEADLINE)

    @property
    def kinds(self) -> tuple[ServerKind, ...]:
        """Its servers by kind of GPU, in node-rank order; empty: they are of one kind."""
        return self.placement.kinds if self.placement else ()

    @property
    def digest(self) -> str:
        """SHA-256 of its canonical JSON; equal PodSets are one gang."""
        return digest(self)
