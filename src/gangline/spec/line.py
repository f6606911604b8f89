"""`line.toml` as frozen data: every key, its default and the rule about itself. `spec.load` reads it."""

from dataclasses import dataclass, field
from typing import Any, Literal

from gangline.spec.plan import Compression, Recovery, Schedule

Auto = Literal["auto"]


@dataclass(frozen=True, kw_only=True, slots=True)
class ProjectTable:
    name: str
    """Head of all names: `[a-z][a-z0-9-]{0,19}`."""
    task: str | None = None
    """`module:Class`: the runtime owns the loop."""
    command: tuple[str, ...] | None = None
    """Any program; exactly one of task and command."""
    include: tuple[str, ...] = ()
    """Globs of the code layer; empty: all tracked files."""
    exclude: tuple[str, ...] = ("docs/**", "*.md")


@dataclass(frozen=True, kw_only=True, slots=True)
class EnvTable:
    lock: str | None = None
    """Requirements file with hashes, inside the repository."""
    base: str | None = None
    """Base image with `@sha256:`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DataTable:
    text: tuple[str, ...] = ()
    """Globs: `repo:src/**/*.py`, `package:gangline/**/*.py`, or a store key."""
    shards: tuple[str, ...] = ()
    digest: str | None = None
    """Demanded data digest."""
    holdout: float = 0.1


@dataclass(frozen=True, kw_only=True, slots=True)
class MeshTable:
    pp: int = 1
    dp_replicate: int = 1
    dp_shard: int = 1
    cp: int = 1
    tp: int = 1
    ep: int = 1
    pp_schedule: str = "auto"
    context: Literal["ring", "ulysses"] = "ring"
    micro_batch: int | Auto = "auto"
    bucket_bytes: int | Auto = "auto"


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryTable:
    activation_checkpointing: str = "auto"
    """auto, none, selective, full, every_N."""
    loss_chunks: int | Auto = "auto"
    offload: Literal["auto", "none", "cpu", "activations", "optimizer_nvme"] = "auto"


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckpointTable:
    every: int | Auto = "auto"
    keep: int = 3
    peer_copies: int = 1
    max_unsaved_seconds: float = 3600.0


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainTable:
    steps: int
    global_batch: int
    """Samples of one update, whatever the world size."""
    seed: int = 1
    strategy: str = "auto"
    """auto, explicit, or a name: none ddp zero1 zero2 fsdp (zero3) hsdp tp cp ep pp 3d local_sgd diloco."""
    precision: Literal["auto", "fp32", "bf16", "fp16"] = "auto"
    deterministic: bool | Auto = "auto"
    ranks: int | tuple[int, int] | Auto = "auto"
    env: dict[str, str] = field(default_factory=dict)
    clip_norm: float | None = None
    mesh: MeshTable = MeshTable()
    memory: MemoryTable = MemoryTable()
    compression: Compression = Compression()
    checkpoint: CheckpointTable = CheckpointTable()
    schedule: Schedule = Schedule()
    recovery: Recovery = Recovery()


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanTable:
    budget_gpu_hours: float | None = None
    budget_money: float | None = None
    deadline_seconds: float | None = None
    objective: Literal["time", "money"] = "time"


@dataclass(frozen=True, kw_only=True, slots=True)
class EvaluateTable:
    metrics: tuple[str, ...] = ()
    """Empty: all that the task returns."""
    seeds: int = 1
    """Three or more learn a band."""
    every_steps: int | None = None
    """None: at the end only."""


@dataclass(frozen=True, kw_only=True, slots=True)
class QualityGate:
    metric: str
    better: Literal["lower", "higher"]
    floor_percent: float = 0.1
    """A band is never narrower than this share of its centre."""
    limit: float | None = None
    """Judged on this value instead of the base's band."""


@dataclass(frozen=True, kw_only=True, slots=True)
class GateTable:
    quality: tuple[QualityGate, ...] = ()
    require_base: bool = False
    reproducible: bool = True
    parity: float = 1e-4
    """Largest loss difference in a replay."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ProveTable:
    plan: str = "auto"
    """auto, a strategy, or `off`."""
    replay_steps: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class PublishTable:
    model: str | None = None
    """None: the project's name."""
    branches: tuple[str, ...] = ("main",)
    smoke: bool = True


@dataclass(frozen=True, kw_only=True, slots=True)
class TriggerTable:
    branches: tuple[str, ...] = ("**",)
    paths: tuple[str, ...] = ("**",)
    supersede: Literal["cancel", "finish"] = "cancel"
    forks: Literal["plan", "approve", "off"] = "plan"
    schedule: str | None = None
    """Five-field cron."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    project: ProjectTable
    train: TrainTable
    env: EnvTable = EnvTable()
    data: DataTable = DataTable()
    model: dict[str, Any] = field(default_factory=dict)
    """Arguments of the task's build_model."""
    optimizer: dict[str, Any] = field(default_factory=dict)
    plan: PlanTable = PlanTable()
    evaluate: EvaluateTable = EvaluateTable()
    gate: GateTable = GateTable()
    prove: ProveTable = ProveTable()
    publish: PublishTable = PublishTable()
    trigger: TriggerTable = TriggerTable()
