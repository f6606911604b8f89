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
    """Globs that are left out of it: a change there changes no code."""


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
    """Keys of shard manifests in the store, instead of text."""
    digest: str | None = None
    """Demanded data digest."""
    holdout: float = 0.1
    """Tail of the data kept for evaluation, in (0, 0.5]."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MeshTable:
    pp: int = 1
    """Pipeline stages. Degrees are taken with `strategy = "explicit"` only."""
    dp_replicate: int = 1
    """Full copies of the model that average their gradients."""
    dp_shard: int = 1
    """FSDP shards of every parameter."""
    cp: int = 1
    """Context-parallel pieces of a sequence."""
    tp: int = 1
    """Tensor-parallel shards; fastest when all fit in one node."""
    ep: int = 1
    """Expert groups laid over dp_shard x cp."""
    pp_schedule: str = "auto"
    """auto, gpipe, 1f1b, interleaved_1f1b, looped_bfs, interleaved_zero_bubble, zbv or dualpipev."""
    context: Literal["ring", "ulysses"] = "ring"
    """How context-parallel peers exchange keys and values."""
    micro_batch: int | Auto = "auto"
    """Samples of one forward pass on one rank; auto: the share of a rank, at most 16, as far as it fits."""
    bucket_bytes: int | Auto = "auto"
    """Size of DDP's gradient buckets; auto: torch's own."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryTable:
    activation_checkpointing: str = "auto"
    """auto, none, selective, full, every_N."""
    loss_chunks: int | Auto = "auto"
    """Pieces of head and loss, so that logits are never whole."""
    offload: Literal["auto", "none", "cpu", "activations", "optimizer_nvme"] = "auto"
    """What leaves the device while it is not used."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckpointTable:
    every: int | Auto = "auto"
    """Steps between saves; auto: a quarter of the steps, within [10, 500]."""
    keep: int = 3
    """Newest checkpoints that stay; at least 2."""
    peer_copies: int = 1
    """Copies in other failure domains, as far as there are any."""
    max_unsaved_seconds: float = 3600.0
    """Longest time without a save, whatever `every` says."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainTable:
    steps: int
    """Optimizer updates."""
    global_batch: int
    """Samples of one update, whatever the world size."""
    seed: int = 1
    """Root of all randomness: initialisation, order of samples, dropout."""
    strategy: str = "auto"
    """auto, explicit, or a name: none ddp zero1 zero2 fsdp (zero3) hsdp tp cp ep pp 3d local_sgd diloco."""
    precision: Literal["auto", "fp32", "bf16", "fp16"] = "auto"
    """Of compute; parameters, optimizer state and reductions stay fp32. auto: fp32 on CPU, else bf16 or fp16."""
    deterministic: bool | Auto = "auto"
    """Refuse algorithms whose sums depend on timing; auto: on CPU."""
    ranks: int | tuple[int, int] | Auto = "auto"
    """How many; a pair [min, max] is elastic; auto: two on CPU, else every GPU."""
    env: dict[str, str] = field(default_factory=dict)
    """Variables of the ranks; names that the gang itself sets are refused."""
    clip_norm: float | None = None
    """Largest global norm of the gradients; none: they are left alone."""
    mesh: MeshTable = MeshTable()
    memory: MemoryTable = MemoryTable()
    compression: Compression = Compression()
    checkpoint: CheckpointTable = CheckpointTable()
    schedule: Schedule = Schedule()
    recovery: Recovery = Recovery()


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanTable:
    budget_gpu_hours: float | None = None
    """Most GPU-hours; more than that is refused before anything is queued."""
    budget_money: float | None = None
    """Most money, in the site's currency."""
    deadline_seconds: float | None = None
    """Longest time of the training."""
    objective: Literal["time", "money"] = "time"
    """What is least among plans within the bounds."""


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
    """Name as evaluation gives it."""
    better: Literal["lower", "higher"]
    """Which side of the band is a regression."""
    floor_percent: float = 0.1
    """A band is never narrower than this share of its centre."""
    limit: float | None = None
    """Judged on this value instead of the base's band."""


@dataclass(frozen=True, kw_only=True, slots=True)
class GateTable:
    quality: tuple[QualityGate, ...] = ()
    """A gate for each metric that may stop a commit."""
    require_base: bool = False
    """Refuse where no base run has the metric; false: such a run becomes the base."""
    reproducible: bool = True
    """Refuse a dirty tree."""
    parity: float = 1e-4
    """Largest loss difference in a replay."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ProveTable:
    plan: str = "auto"
    """auto, a strategy, or `off`."""
    replay_steps: int = 0
    """First steps that are trained again under the second plan."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PublishTable:
    model: str | None = None
    """None: the project's name."""
    branches: tuple[str, ...] = ("main",)
    """Globs of branches whose runs are published."""
    smoke: bool = True
    """A fresh process loads the published folder and answers one batch."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TriggerTable:
    branches: tuple[str, ...] = ("**",)
    """Globs of branches that start runs."""
    paths: tuple[str, ...] = ("**",)
    """Globs of changed paths that start runs."""
    supersede: Literal["cancel", "finish"] = "cancel"
    """What a newer push does to open runs of its branch."""
    forks: Literal["plan", "approve", "off"] = "plan"
    """What a commit of a fork may do: plan only, submit after approval, or nothing."""
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
    """Rules by group of parameters: `[optimizer.elementwise]` has `rule`, `lr` and the rule's own options."""
    plan: PlanTable = PlanTable()
    evaluate: EvaluateTable = EvaluateTable()
    gate: GateTable = GateTable()
    prove: ProveTable = ProveTable()
    publish: PublishTable = PublishTable()
    trigger: TriggerTable = TriggerTable()
