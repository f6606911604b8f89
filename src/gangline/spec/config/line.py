"""`line.toml` as frozen data: every key, its default and the rule about itself. `spec.config.load` reads it."""

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from gangline.spec.bounds import Bound
from gangline.spec.compression import Compression
from gangline.spec.config.infer_table import InferTable, ServeGate
from gangline.spec.data_source import Order
from gangline.spec.federated import FederatedTable
from gangline.spec.measurements import Better
from gangline.spec.parameter_server import ParameterServer
from gangline.spec.plan import (
    Collectives,
    ContextExchange,
    PipelineSchedule,
    Recovery,
    Schedule,
    StartCheckpoint,
)
from gangline.spec.search import SearchTable
from gangline.spec.transformer import Transformer

Auto = Literal["auto"]
_DEGREE = Bound(least=1, works="leave an unused axis out")


@dataclass(frozen=True, kw_only=True, slots=True)
class ProjectTable:
    """What the project is called and what its ranks run: a task of the training loop, or a program."""

    name: str
    """Head of all names: `[a-z][a-z0-9-]{0,19}`."""
    task: str | None = None
    """`module:Class`: the runtime owns the loop."""
    command: tuple[str, ...] | None = None
    """Any program; in its words `{seed}` is the seed, `{model.lr}` the key `lr` of `[model]`; exactly one of task and
    command."""
    distributed: bool = True
    """Whether a command gets the variables of torchrun for its gang (RANK, WORLD_SIZE, MASTER_ADDR); false: one
    process."""
    include: tuple[str, ...] = ()
    """Globs of the code layer; empty: all tracked files. `../common/**` adds files of a folder next to the line's, of
    the same repository: the layer then has all files at their places in it. `lib/**` adds those of submodule lib."""
    exclude: tuple[str, ...] = ()
    """Globs that are left out of it: no program can read such files, and a change there trains nothing again."""
    outputs: tuple[str, ...] = ()
    """Globs of what ranks write, collected at the end from the folder that rank 0 started in: `["out/**", "*.pt"]`; of
    several nodes that of node 0 alone."""
    metrics: str | None = None
    """File in which a command leaves its numbers: .json, .jsonl or .csv, such as `metrics.json`."""
    metrics_of: tuple[str, ...] = ()
    """Globs of outputs with the weights that a command's metrics were measured on, where `program.report` does not say
    it: `["out/model.pt"]`. A version of other files is not published."""
    track: tuple[str, ...] | None = None
    """Trackers of the site by name that get this project's runs; none: all of them, an empty list: no one."""
    path: tuple[str, ...] = ()
    """Folders of the code layer on the path of Python, in order and in addition to its top: `["src"]`."""

    @property
    def own(self) -> tuple[str, ...]:
        """Globs of `include` below the line's folder."""
        return tuple(each for each in self.include if not each.startswith("../"))

    @property
    def beside(self) -> tuple[str, ...]:
        """Those of folders next to it, or above."""
        return tuple(each for each in self.include if each.startswith("../"))


@dataclass(frozen=True, kw_only=True, slots=True)
class EnvTable:
    """What ranks run in."""

    lock: str | None = None
    """Lock of the packages that ranks run with: hashed requirements, a `uv.lock` or a `pylock.toml` of the commit."""
    extras: tuple[str, ...] = ()
    """Extras of the project that are installed, too; of a `uv.lock` alone."""
    python: str | None = None
    """Version of Python, as `3.12`, where the lock does not say; none: that of gangline."""
    base: str | None = None
    """Base image with `@sha256:`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MixTable:
    """One data set of several, as `[[data.mix]]`."""

    shards: str
    """`dataset:NAME[@VERSION or @ALIAS]`."""
    weight: Annotated[float, Bound(above=0, words="a number above 0", works="leave the set out")]
    """Share of the samples, relative to the other data sets."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DataTable:
    """What is trained on: files of the repository or of packages, or shards in the store."""

    text: tuple[str, ...] = ()
    """Globs: `repo:src/**/*.py`, `package:gangline/**/*.py`, or a store key."""
    shards: tuple[str, ...] = ()
    """Data sets, `dataset:NAME`, `dataset:NAME@VERSION` or `dataset:NAME@ALIAS`, or keys of shard manifests in the
    store; instead of text."""
    mix: tuple[MixTable, ...] = ()
    """Several data sets by share of samples, each a table `[[data.mix]]`; instead of `data.shards`."""
    order: Order | Auto = "auto"
    """window: groups of `data.window` shards are shuffled together; full: one permutation of all samples; file: as
    they lie in the shards; auto: window for data sets, full otherwise."""
    window: Annotated[int, Bound(least=1, works="8 is the default")] = 8
    """Shards that are shuffled together."""
    parts: Annotated[int, Bound(least=1, works="1 is the default")] = 1
    """Independent streams of shards: with 16, each of 16 servers reads a sixteenth of the bytes."""
    workers: Annotated[
        int | Auto, Bound(least=0, works="0: the ranks read samples themselves"), Bound(most=64, works="auto, or fewer")
    ] = "auto"
    """Processes of a rank that read and decode samples; auto: none on a CPU, else the cores of a rank less one, at
    most 4."""
    prefetch: Annotated[int, Bound(least=1, works="2 is the default"), Bound(most=1000, works="auto, or fewer")] = 2
    """Batches that each worker reads ahead."""
    digest: str | None = None
    """Demanded data digest."""
    holdout: Annotated[
        float, Bound(above=0, most=0.5, words="a share in (0, 0.5]", works="0.1 keeps the last tenth")
    ] = 0.1
    """Tail of the data kept for evaluation, in (0, 0.5]."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MeshTable:
    """Degrees of the device mesh, for those who do not leave them to the planner."""

    pp: Annotated[int, _DEGREE] = 1
    """Pipeline stages. Degrees are taken with `strategy = "explicit"` only."""
    dp_replicate: Annotated[int, _DEGREE] = 1
    """Full copies of the model that average their gradients."""
    dp_shard: Annotated[int, _DEGREE] = 1
    """FSDP shards of every parameter."""
    cp: Annotated[int, _DEGREE] = 1
    """Context-parallel pieces of a sequence."""
    tp: Annotated[int, _DEGREE] = 1
    """Tensor-parallel shards; fastest when all fit in one node."""
    ep: Annotated[int, _DEGREE] = 1
    """Expert groups laid over dp_shard x cp."""
    pp_schedule: PipelineSchedule | Auto = "auto"
    """Order of forwards and backwards in a pipeline; auto: the one that leaves least idle."""
    context: ContextExchange = "ring"
    """How context-parallel peers exchange keys and values."""
    micro_batch: Annotated[int | Auto, Bound(least=1, works='"auto" chooses')] = "auto"
    """Samples of one forward pass on one rank; auto: the share of a rank, at most 16, as far as it fits."""
    bucket_bytes: Annotated[int | Auto, Bound(least=1, works='"auto" leaves it to torch')] = "auto"
    """Size of DDP's gradient buckets; auto: torch's own."""
    collectives: Collectives = "auto"
    """How NCCL reduces: in a ring (bandwidth of large messages), along trees (many nodes), or as it finds best."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryTable:
    """What is given up to fit into memory."""

    activation_checkpointing: str = "auto"
    """auto, none, selective, full, every_N."""
    loss_chunks: Annotated[int | Auto, Bound(least=1)] = "auto"
    """Pieces of head and loss, so that logits are never whole."""
    offload: Literal["auto", "none", "cpu", "activations", "optimizer_nvme"] = "auto"
    """What leaves the device while it is not used."""
    gradient_sync: Literal["auto", "last", "each"] = "auto"
    """When shards reduce their gradients: after the last micro-batch of a step, or after each, which holds no whole
    gradients and sends them more often; auto: as a forecast by formula says, else last."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckpointTable:
    """When training is saved, and how much of it is kept."""

    every: Annotated[int | Auto, Bound(least=1, works='"auto" chooses')] = "auto"
    """Steps between saves; auto: what earlier runs say loses the least time, before that a quarter within [10, 500]."""
    keep: Annotated[int, Bound(least=2, works="the newest one may be broken")] = 3
    """Newest checkpoints that stay; at least 2."""
    peer_copies: Annotated[int, Bound(least=0)] = 1
    """Other nodes that keep a copy in memory, as far as there are any; 0: none do, the own one neither."""
    max_unsaved_seconds: Annotated[float, Bound(above=0)] = 3600.0
    """Longest time without a save, whatever `every` says."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainTable:
    """How the weights are made; all values are part of the run's name."""

    steps: Annotated[int, Bound(least=1), Bound(most=10**10)]
    """Optimizer updates."""
    global_batch: Annotated[int, Bound(least=1), Bound(most=10**9, works="count samples, not tokens")]
    """Samples of one update, whatever the world size."""
    seed: Annotated[int, Bound(least=0, most=2**63 - 1, words="a whole number of at most 63 bits")] = 1
    """Root of all randomness: initialisation, order of samples, dropout."""
    strategy: str = "auto"
    """auto, explicit, or a name: {strategies}."""
    precision: Literal["auto", "fp32", "bf16", "fp16"] = "auto"
    """Number format of compute; parameters, optimizer state and reductions stay fp32. auto: fp32 on CPU, else bf16 or
    fp16."""
    deterministic: bool | Auto = "auto"
    """Refuse algorithms whose sums depend on timing; auto: on CPU."""
    ranks: Annotated[int | tuple[int, int] | Auto, Bound(least=1, works='"auto" takes what is there')] = "auto"
    """How many; a pair [min, max] is elastic; auto: two on CPU, else every GPU."""
    env: dict[str, str] = field(default_factory=dict)
    """Variables of model code; names that the gang itself sets are refused. `secret:env:NAME` and `secret:file:/PATH`
    are read by the driver, where `secrets.train_env` of the site allows it, and set in ranks of own commits."""
    stop_at: int | None = None
    """End after so many steps of a schedule that continues to `steps`; such a run is no base and never published."""
    clip_norm: Annotated[
        float | None, Bound(above=0, words="a norm above 0", works="leave it out: nothing is clipped")
    ] = None
    """Largest global norm of the gradients; none: they are left alone."""
    compile: bool = False
    """Put each block through torch.compile: a slower start, faster steps."""
    mesh: MeshTable = MeshTable()
    memory: MemoryTable = MemoryTable()
    compression: Compression = Compression()
    parameter_server: ParameterServer | None = None
    """Workers and servers of `strategy = "parameter_server"`."""
    checkpoint: CheckpointTable = CheckpointTable()
    start: StartCheckpoint = StartCheckpoint()
    schedule: Schedule = Schedule()
    recovery: Recovery = Recovery()


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanTable:
    """Bounds that hold before anything is queued, and what is optimised within them."""

    budget_gpu_hours: Annotated[float | None, Bound(least=0, works="leave it out for none")] = None
    """Most GPU-hours; more than that is refused before anything is queued."""
    budget_money: Annotated[float | None, Bound(least=0, works="leave it out for none")] = None
    """Most money, in the site's currency."""
    deadline_seconds: Annotated[float | None, Bound(least=0, works="leave it out for none")] = None
    """Longest time of the training, all its gangs together: then it is asked to save, and stopped."""
    objective: Literal["time", "money"] = "time"
    """What is least among plans within the bounds."""
    transformer: Transformer | None = None
    """Shape of the model, for what cannot be traced: programs, and models larger than this machine."""


@dataclass(frozen=True, kw_only=True, slots=True)
class EvaluateTable:
    """What is measured on held-out data, and over how many seeds."""

    metrics: tuple[str, ...] = ()
    """Empty: all that the task returns."""
    seeds: Annotated[int, Bound(least=1, works="3 or more learn a band")] = 1
    """Three or more learn a band; a program is trained once for each, and has to read its seed."""
    every_steps: Annotated[int | None, Bound(least=1, works="leave it out: only at the end")] = None
    """None: at the end only."""


@dataclass(frozen=True, kw_only=True, slots=True)
class QualityGate:
    """One metric that may not become worse: judged on the base's band, or on a limit."""

    metric: str
    """Name as evaluation gives it."""
    better: Better
    """Which side of the band is a regression."""
    floor_percent: Annotated[float, Bound(least=0, works="0.1 is the default")] = 0.1
    """A band is never narrower than this share of its centre."""
    limit: float | None = None
    """Judged on this value instead of the base's band."""
    tolerance_percent: Annotated[float | None, Bound(least=0, works="leave it out: the base's band judges")] = None
    """Judged on the base's value and this share of it instead of a band: for programs that cannot be repeated."""


@dataclass(frozen=True, kw_only=True, slots=True)
class GateTable:
    """What refuses a run, in addition to the quality gates."""

    quality: tuple[QualityGate, ...] = ()
    """A gate for each metric that may stop a commit."""
    require_base: bool = False
    """Refuse where no base run has the metric; false: such a run becomes the base."""
    reproducible: bool | Literal["strict"] = True
    """Refuse what contradicts the record, as a dirty tree does; strict: refuse what is not pinned, too."""
    may_fail: tuple[str, ...] = ()
    """Programs whose failure is handled by the program that starts them: globs of file names and modules, as
    `["probe.py"]`. A program below which failures are not seen, such as the script of a shell, is accepted likewise."""
    parity: Annotated[float, Bound(least=0, works="1e-4 is the default")] = 1e-4
    """Largest loss difference in a replay."""
    serve: ServeGate | None = None
    """Limits of the candidate as it would be served; wants `publish.smoke = "serve"`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ProveTable:
    """How the checkpoint of a task is proved: opened under a second plan, every tensor compared with what is stored."""

    plan: str = "auto"
    """auto, a strategy, or `off`."""
    replay_steps: Annotated[int, Bound(least=0, works="0 replays nothing")] = 0
    """First steps that are trained again under the second plan, too, and their losses compared."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PublishTable:
    """Which runs become versions of a model."""

    model: str | None = None
    """None: the project's name."""
    branches: tuple[str, ...] = ("main",)
    """Globs of branches whose runs are published."""
    files: tuple[str, ...] = ()
    """Globs of the outputs of a command, or of its newest save, that are published as they are: `["out/model.pt"]`."""
    smoke: bool | Literal["serve"] = True
    """A fresh process loads the published folder and answers one batch; serve: it is started as `gangline infer` starts
    it and answers over HTTP, timed."""
    dataset: str | None = None
    """Data set that the outputs of a run become a version of."""
    push: bool = False
    """Whether the git tag of a version is pushed to the remote `origin`; otherwise it stays in the repository."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TriggerTable:
    """Which changes start a run by themselves."""

    branches: tuple[str, ...] = ("**",)
    """Globs of branches that start runs."""
    paths: tuple[str, ...] = ("**",)
    """Globs of changed paths that start runs."""
    supersede: Literal["cancel", "finish"] = "cancel"
    """What a newer push does to open runs of its branch."""
    forks: Literal["plan", "approve", "off"] = "plan"
    """What a commit of a fork starts: nothing (`off`), or a plan, and a run once a maintainer approves (the others)."""
    schedule: str | None = None
    """Five-field cron."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """`line.toml`, whole."""

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
    infer: InferTable = InferTable()
    trigger: TriggerTable = TriggerTable()
    search: SearchTable = SearchTable()
    federated: FederatedTable | None = None
