"""The plan: what a gang obeys. Made by the plan stage, written once as `plan.json`, read by every rank."""

from dataclasses import dataclass, field
from typing import Any, Literal

from gangline.spec.codec import canonical, digest, from_json
from gangline.spec.mesh import Mesh

Role = Literal["train", "evaluate", "prove"]
Strategy = Literal[
    "none", "ddp", "zero1", "zero2", "fsdp", "hsdp", "tp", "cp", "ep", "pp", "3d", "local_sgd", "diloco", "explicit"
]
"""`zero3` is read as `fsdp`."""
Precision = Literal["fp32", "bf16", "fp16"]
Device = Literal["cpu", "cuda"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Program:
    """What the ranks run: exactly one of the two is set."""

    task: str | None = None
    """`module:Class`, found in the code layer; the runtime owns the loop."""
    command: tuple[str, ...] = ()
    """Argument vector of any program, started in the code layer with the gang's environment."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DataSource:
    """Resolved training data: files of the code layer or the store, all by digest."""

    files: tuple["DataFile", ...] = ()
    digest: str = ""
    """SHA-256 over the sorted (path, sha256, size) of `files`."""
    holdout: float = 0.1
    """Tail of the data kept for evaluation."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DataFile:
    path: str
    """As the task sees it: relative to the data folder of the gang."""
    key: str
    """`blobs/sha256/<digest>` in the store."""
    size_bytes: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Schedule:
    """Learning rate over steps: linear warm-up, then `kind` down to `final_ratio` of the peak at the last step."""

    kind: Literal["constant", "linear", "cosine"] = "constant"
    """Shape after the warm-up."""
    warmup_steps: int = 0
    """Steps from zero to the peak."""
    final_ratio: float = 0.1
    """Learning rate of the last step, as a share of the peak."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckpointPolicy:
    every: int
    """Steps between saves; the last step is always saved."""
    keep: int = 3
    peer_copies: int = 1
    max_unsaved_seconds: float = 3600.0
    asynchronous: bool = True


@dataclass(frozen=True, kw_only=True, slots=True)
class Recovery:
    mode: Literal["restart", "live"] = "restart"
    """After a lost rank: a new generation of all ranks, or the living go on."""
    max_events: int = 10
    """Restarts that a run may spend; refilled after a clean hour."""
    non_finite: Literal["stop", "skip", "rollback"] = "stop"
    """After a loss or gradient that is not finite: stop, skip the step, or go back to a checkpoint."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Compression:
    kind: Literal["none", "fp16", "bf16", "powersgd", "topk", "int8"] = "none"
    """Of gradients on the wire."""
    rank: int = 2
    """Of powersgd's factors."""
    ratio: float = 0.01
    """Share of entries that topk sends."""
    outer_steps: int | None = None
    """Local steps between synchronisations of local_sgd and diloco."""
    outer_lr: float | None = None
    """Learning rate of their outer optimizer."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Memory:
    activation_checkpointing: str = "none"
    loss_chunks: int = 1
    offload: Literal["none", "cpu", "activations", "optimizer_nvme"] = "none"


@dataclass(frozen=True, kw_only=True, slots=True)
class Forecast:
    """What the planner knows; None is "not known yet", never a guess."""

    parameters: int | None = None
    memory_bytes: int | None = None
    """Peak of the busiest rank."""
    step_seconds: float | None = None
    wall_seconds: float | None = None
    gpu_hours: float | None = None
    money: float | None = None
    origin: str = "unknown"
    """Where the numbers come from: `measured n=3`, `record <run>`, `formula`, `unknown`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Candidate:
    """One plan that was considered, with the one reason why it won or lost."""

    name: str
    strategy: Strategy
    mesh: Mesh
    verdict: Literal["chosen", "runner_up", "lost", "no_fit", "unsupported"]
    reason: str
    forecast: Forecast = Forecast()


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """One training inside an evaluate or prove gang; jobs run one after the other on the same ranks."""

    seed: int
    train: bool = True
    """Train from step 0 (a seed of the band), else only evaluate `checkpoint`."""
    checkpoint: str | None = None
    """Store prefix of a checkpoint to open first: `runs/.../checkpoints/step-00000120`."""
    steps: int | None = None
    """Stop after so many steps; None: the plan's."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """Everything a rank needs to know; it says neither where nor when it runs, so equal questions give equal bytes."""

    schema: int = 1
    run: str
    project: str
    name: str
    """Short form of strategy and degrees, e.g. `ddp-2`, `hsdp-2x8`."""
    role: Role = "train"
    run_prefix: str
    """`runs/<project>/<commit>/<run>` in the store."""
    program: Program
    strategy: Strategy
    mesh: Mesh
    device: Device = "cpu"
    precision: Precision = "fp32"
    deterministic: bool = True
    model: dict[str, Any] = field(default_factory=dict)
    optimizer: dict[str, Any] = field(default_factory=dict)
    data: DataSource = DataSource()
    steps: int
    global_batch: int
    micro_batch: int
    """Samples of one forward pass on one data-parallel rank."""
    seed: int = 1
    schedule: Schedule = Schedule()
    clip_norm: float | None = None
    bucket_bytes: int | None = None
    """DDP's gradient buckets; None leaves torch's own size."""
    memory: Memory = Memory()
    compression: Compression = Compression()
    checkpoint: CheckpointPolicy
    recovery: Recovery = Recovery()
    evaluate_every: int | None = None
    evaluate_metrics: tuple[str, ...] = ()
    """Empty: all that the task returns."""
    jobs: tuple[Job, ...] = ()
    """Of evaluate and prove gangs; a train gang has none."""
    reason: str = ""
    candidates: tuple[Candidate, ...] = ()
    forecast: Forecast = Forecast()

    @property
    def world_size(self) -> int:
        return self.mesh.world_size

    @property
    def accumulation(self) -> int:
        """Micro-batches of one data-parallel rank in one step."""
        return self.global_batch // (self.micro_batch * self.mesh.data_parallel)

    @property
    def digest(self) -> str:
        return digest(self)

    def to_json(self) -> bytes:
        return canonical(self)

    @staticmethod
    def from_json(data: bytes | str) -> "Plan":
        return from_json(Plan, data)
