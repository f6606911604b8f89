"""The plan: what a gang obeys. Made by the plan stage, written once as `plan.json`, read by every rank."""

from dataclasses import dataclass, field, fields, replace
from typing import Annotated, Any, Literal, get_args

from gangline.errors import ConfigError
from gangline.spec.bounds import SHARE, Bound
from gangline.spec.codec import Document, digest
from gangline.spec.compression import Compression
from gangline.spec.data_source import DataSource
from gangline.spec.federated import FederationPlan
from gangline.spec.forecast import Forecast
from gangline.spec.mesh import Mesh
from gangline.spec.parameter_server import ParameterPlan
from gangline.spec.replica_shares import require_shares
from gangline.spec.strategies import Strategy, Wrapping, outer_interval, traits_of, wrapping_of

Role = Literal["train", "evaluate", "prove", "score"]
Precision = Literal["fp32", "bf16", "fp16"]
PipelineSchedule = Literal[
    "gpipe", "1f1b", "interleaved_1f1b", "looped_bfs", "interleaved_zero_bubble", "zbv", "dualpipev"
]
SCHEDULE_NAMES: tuple[PipelineSchedule, ...] = get_args(PipelineSchedule)
V_SCHEDULES: frozenset[PipelineSchedule] = frozenset({"zbv", "dualpipev"})
"""Stages run down the ranks and up again: the first rank holds the first and the last."""
SCHEDULES = ("constant", "linear", "cosine")
"""Shapes of a learning rate that need no function."""
ContextExchange = Literal["ring", "ulysses"]
Collectives = Literal["auto", "ring", "tree"]
Device = Literal["cpu", "cuda"]
Verdict = Literal[
    "chosen", "runner_up", "lost", "more_axes", "dearer", "late", "over_budget", "no_servers", "no_fit", "unsupported"
]
"""Fate of a candidate: `lost` is slower; `more_axes` as fast and less simple; `no_servers` finds none free now."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ProgramSpec:
    """What the ranks run: exactly one of the two is set."""

    task: str | None = None
    """`module:Class`, found in the code layer; the runtime owns the loop."""
    command: tuple[str, ...] = ()
    """Argument vector of any program, started in the code layer with the gang's environment; `{seed}` is the seed,
    `{model.lr}` a key of `model`."""
    distributed: bool = True
    """A command gets the variables of torchrun for its gang; false: it is one process without them."""
    path: tuple[str, ...] = ()
    """Folders of the code layer that are on the path behind the one that the program is started in."""
    folder: str = ""
    """Folder of the code layer in which ranks start; empty: its top."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Schedule:
    """Learning rate over steps: linear warm-up, then `kind` down to `final_ratio` of the peak at the last step."""

    kind: str = "constant"
    """Shape after the warm-up, `constant`, `linear` or `cosine`; or `module:function`, a function of the repository,
    called with (step, steps), step from 1, that answers the ratio to the peak: it decides alone."""
    warmup_steps: Annotated[int, Bound(least=0)] = 0
    """Steps from zero to the peak."""
    final_ratio: Annotated[float, SHARE] = 0.1
    """Learning rate of the last step, as a share of the peak."""

    @property
    def function(self) -> str | None:
        """`module:function` of the repository; None: a shape of ours."""
        return self.kind if ":" in self.kind else None


@dataclass(frozen=True, kw_only=True, slots=True)
class FusedParameter:
    """Names of one fused parameter and of its parts, for a checkpoint of either model that the other one opens."""

    match: str
    """Name of the fused one, `layers.*.wqkv.*`: `*` is any text, dots included, and the same text in `parts`."""
    parts: tuple[str, ...]
    """Names of the others, in the order of the split rule; of `stack` one, with `{}` for the number."""
    split: Literal["gate_up", "gate_up_interleaved", "qkv", "qkv_by_group", "stack"]
    """Split rule of `[[optimizer.route]]`: which rows are whose; a bias has the same."""
    heads: int = 0
    """Heads of queries; only `qkv` and `qkv_by_group` have this and the two below."""
    kv_heads: int = 0
    """Heads of keys, and of values."""
    head_dim: int = 0
    """Rows of one head."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StartCheckpoint:
    """Checkpoint that a training starts from until it has one of its own."""

    checkpoint: str | None = None
    """Folder of a checkpoint of another run of the project, `runs/.../gang/checkpoints/step-00000120`: the run
    continues after its step; none: the run begins with step 0."""
    fused: tuple[FusedParameter, ...] = ()
    """Parameters that one of both models has fused and the other one split."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SaveCosts:
    """What earlier runs of a line measured: the interval between saves follows from it."""

    blocking_seconds: float
    """Seconds that one save stops the training."""
    step_seconds: float
    seconds_between_failures: float
    """Mean over the whole gang; how long a restart takes changes no interval."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckpointPolicy:
    """When ranks save, and what is kept."""

    every: int
    """Steps between saves; the last step is always saved."""
    keep: int = 3
    peer_copies: int = 1
    """Other nodes that keep a copy in memory, as far as there are others; 0: no node keeps any, its own neither."""
    max_unsaved_seconds: float = 3600.0
    asynchronous: bool = True
    costs: SaveCosts | None = None
    """What `every` was chosen by: it changes with the failures of this gang; None: it stays."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Recovery:
    """What becomes of lost ranks and of numbers that are not finite."""

    mode: Literal["restart", "live"] = "restart"
    """What follows a lost rank: a new generation of all ranks, or the living go on."""
    max_events: Annotated[int, Bound(least=0)] = 10
    """Restarts that a run may spend; refilled after a clean hour."""
    non_finite: Literal["stop", "skip", "rollback"] = "stop"
    """What follows a loss or gradient that is not finite: stop, skip the step, or go back to a checkpoint."""
    stragglers: Literal["name", "rebalance", "evict"] = "name"
    """What follows when a rank is found slow: a word in the record, less work for its replica, or a gang without it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Memory:
    """What is recomputed or moved out to fit."""

    activation_checkpointing: str = "none"
    loss_chunks: int = 1
    offload: Literal["none", "cpu", "activations", "optimizer_nvme"] = "none"
    gradient_sync: Literal["last", "each"] = "last"
    """When shards reduce their gradients: after the last micro-batch of a step, or after each of them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Candidate:
    """One plan that was considered, with the one reason why it won or lost."""

    name: str
    strategy: Strategy
    mesh: Mesh
    verdict: Verdict
    reason: str
    forecast: Forecast = Forecast()


@dataclass(frozen=True, kw_only=True, slots=True)
class Size:
    """How the same training continues with another number of ranks: what an elastic gang keeps ready."""

    name: str
    strategy: Strategy
    mesh: Mesh
    micro_batch: int
    shares: tuple[int, ...] = ()


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
class Plan(Document):
    """Everything a rank needs to know; it says neither where nor when it runs, so equal questions give equal bytes."""

    schema: int = 1
    run: str
    project: str
    name: str
    """Short form of strategy and degrees, e.g. `ddp-2`, `hsdp-2x8`."""
    role: Role = "train"
    run_prefix: str
    """`runs/<project>/<commit>/<run>` in the store."""
    program: ProgramSpec
    strategy: Strategy
    mesh: Mesh
    device: Device = "cpu"
    precision: Precision = "fp32"
    deterministic: bool = True
    model: dict[str, Any] = field(default_factory=dict)
    optimizer: dict[str, Any] = field(default_factory=dict)
    data: DataSource = DataSource()
    steps: int
    stop_at: int | None = None
    """Training ends here, the schedule continues to `steps`; None: it ends there, too."""
    global_batch: int
    micro_batch: int
    """Samples of one forward pass on one data-parallel rank."""
    shares: tuple[int, ...] = ()
    """Samples of a step by replica, where these run on unlike devices; empty: equal ones."""
    seed: int = 1
    schedule: Schedule = Schedule()
    clip_norm: float | None = None
    bucket_bytes: int | None = None
    """DDP's gradient buckets; None leaves torch's own size."""
    collectives: Collectives = "auto"
    """How NCCL reduces: in a ring, along trees, or as it finds best; means nothing on CPUs."""
    pp_schedule: PipelineSchedule = "1f1b"
    """Order of forwards and backwards in a pipeline; means nothing without one."""
    context: ContextExchange = "ring"
    """How context-parallel peers exchange keys and values; means nothing without them."""
    compile: bool = False
    """Each block goes through torch.compile."""
    memory: Memory = Memory()
    compression: Compression = Compression()
    checkpoint: CheckpointPolicy
    start: StartCheckpoint = StartCheckpoint()
    recovery: Recovery = Recovery()
    federation: FederationPlan | None = None
    """Members that train in rounds; None: the ranks of this gang train."""
    parameters: ParameterPlan | None = None
    """Workers that train apart and servers that merge; None: the ranks of this gang train together."""
    evaluate_every: int | None = None
    evaluate_metrics: tuple[str, ...] = ()
    """Empty: all that the task returns."""
    jobs: tuple[Job, ...] = ()
    """Jobs of evaluate and prove gangs of a task; a gang that trains one seed from its saves on has none."""
    sizes: tuple[Size, ...] = ()
    """Other world sizes that an elastic gang may go on with; empty: it stays as it is."""
    reason: str = ""
    candidates: tuple[Candidate, ...] = ()
    forecast: Forecast = Forecast()

    def __post_init__(self) -> None:
        require_shares(self.shares, self.mesh, global_batch=self.global_batch, averages_rarely=self.averages_rarely)

    @property
    def world_size(self) -> int:
        """Ranks of the gang."""
        return self.mesh.world_size

    @property
    def is_seed(self) -> bool:
        """Does it train a program once more, with another seed than the run's?"""
        return self.role == "evaluate" and not self.jobs

    @property
    def worker(self) -> int:
        """Number of the worker of a parameter server that this gang is, from 1; 0: it is none."""
        return self.parameters.worker if self.parameters is not None else 0

    @property
    def num_workers(self) -> int:
        """Workers of a parameter server that share the steps of the run; 1 without one."""
        return self.parameters.table.workers if self.parameters is not None else 1

    @property
    def own_prefix(self) -> str:
        """Where what is trained here saves, and finds its saves: those of one seed are none of another's."""
        return f"{self.run_prefix}/seeds/{self.seed}" if self.is_seed else self.run_prefix

    @property
    def output_prefix(self) -> str:
        """Where the out folder of the gang lies in the store."""
        if self.role == "train" and self.worker:
            return f"{self.run_prefix}/workers/{self.worker}"
        return self.own_prefix if self.role == "train" or self.is_seed else f"{self.run_prefix}/{self.role}"

    @property
    def loss_place(self) -> int:
        """Place on `pp` that holds the last stage, and so the loss."""
        return 0 if self.pp_schedule in V_SCHEDULES else self.mesh.pp - 1

    @property
    def wrapping(self) -> Wrapping:
        """How the data-parallel axes wrap a model, inside the other axes."""
        return wrapping_of(self.strategy, self.mesh)

    @property
    def averages_rarely(self) -> bool:
        """Replicas train apart between outer steps."""
        traits = traits_of(self.strategy)
        return traits is not None and traits.averages_rarely

    @property
    def outer_interval(self) -> int:
        """Steps from one exchange of the replicas or workers to the next; 1: they average every step."""
        if self.parameters is not None:
            return self.parameters.compression.outer_steps or 1
        return outer_interval(self.strategy, self.compression.outer_steps)

    @property
    def lossy(self) -> str | None:
        """What makes its updates differ from those of exact gradients; None: nothing does."""
        if self.parameters is not None:
            return f"{self.parameters.table.workers} workers that push every {self.outer_interval} steps"
        if self.averages_rarely:
            return f"{self.strategy} every {self.compression.outer_steps} steps"
        return None if self.compression.kind == "none" else self.compression.kind

    @property
    def last_step(self) -> int:
        """Where its trainings end."""
        return self.steps if self.stop_at is None else self.stop_at

    @property
    def rounds(self) -> int:
        """Rounds of a federation; 0 without one."""
        return self.steps // self.federation.table.local_steps if self.federation is not None else 0

    @property
    def most_trainings(self) -> int:
        """Trainings of a member that its privacy budget covers: those of all rounds, and of rounds that are lost."""
        if self.federation is None:
            return 0
        spare = self.federation.table.spare_rounds
        return self.rounds + (-(-self.rounds // 10) if spare is None else spare)

    @property
    def rank_samples(self) -> int:
        """Samples of a step on a data-parallel rank of the replica that takes most."""
        return max(self.shares or (self.global_batch // self.mesh.dp_replicate,)) // self.mesh.dp_shard

    @property
    def accumulation(self) -> int:
        """Micro-batches of such a rank in one step."""
        return self.rank_samples // self.micro_batch

    def at(self, world_size: int) -> "Plan":
        """The same plan for another number of ranks.

        Raises:
            ConfigError: None was kept ready for that number.
        """
        if world_size == self.world_size:
            return self
        names = [each.name for each in fields(Size)]
        for size in self.sizes:
            if size.mesh.world_size == world_size:
                own, wanted = ({name: getattr(each, name) for name in names} for each in (self, size))
                sizes = tuple(Size(**own) if each == size else each for each in self.sizes)
                return replace(self, **wanted, sizes=sizes)
        works = ", ".join(str(each) for each in sorted({self.world_size, *(s.mesh.world_size for s in self.sizes)}))
        raise ConfigError(f"plan {self.name}: wanted {world_size} ranks, it is ready for {works}")

    @property
    def digest(self) -> str:
        """SHA-256 of its canonical JSON."""
        return digest(self)
