"""Measurements in the record of a run: metrics, loss curve, times by rank, lost time, the proof, injected faults."""

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from gangline.spec.parameter_server import WorkersSummary

LEDGER_CAUSES = (
    "gather", "image", "start", "rendezvous", "build", "resume", "compute", "data", "wait", "exchange", "bubble",
    "checkpoint", "evaluate", "redone", "stalled", "restart", "profile", "drill", "stop", "idle", "other",
)  # fmt: skip
"""Where held seconds go; a rank is in exactly one at any instant."""
Answer = Literal["yes", "no", "unknown"]
"""Verdict of a gate or a comparison."""
Better = Literal["lower", "higher"]
"""Which way a metric improves."""
PHASES = ("data", "forward", "backward", "wait", "bubble", "optimizer", "checkpoint", "other")
"""What a step of a rank consists of; only a pipeline has bubbles."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Band:
    """Interval in which one new run of the same commit lies, 95 times of 100; or what a gate tolerates."""

    center: float
    half: float
    n: int
    """Seeds it was learned from; 1: it was not learned, `tolerance_percent` of a gate says how wide it is."""
    origin: str
    """Run it was learned in."""
    equal: bool = False
    """All seeds gave the same in everything that was measured: the program does not use its seed."""

    @property
    def word(self) -> str:
        """What people call it."""
        return "band" if self.n > 1 else "tolerance"

    @property
    def low(self) -> float:
        """Lower edge."""
        return self.center - self.half

    @property
    def high(self) -> float:
        """Upper edge."""
        return self.center + self.half


@dataclass(frozen=True, kw_only=True, slots=True)
class Metric:
    """A value on held-out data, with what it is judged on."""

    value: float
    unit: str = ""
    step: int | None = None
    better: Better | None = None
    seeds: dict[str, float] = field(default_factory=dict)
    """Value by seed, the run's own seed among them."""
    band: Band | None = None
    """Learned from `seeds` of this run, when it has three or more."""
    base: float | None = None
    base_band: Band | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class CurvePoint:
    """One place of the curve."""

    step: int
    value: float
    low: float | None = None
    high: float | None = None
    """Base band at this point, where the base has one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BrokenSteps:
    """Steps whose value is not finite, neighbours of each other as far as such places are few."""

    first: int
    last: int
    count: int
    """Broken steps from the first to the last."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Curve:
    """The training metric over the steps, thinned."""

    metric: str = "loss"
    points: tuple[CurvePoint, ...] = ()
    """The mean of each 1/64 of the steps; at most 64 points."""
    broken: tuple[BrokenSteps, ...] = ()
    """Steps without a finite value, which no point counts; at most 64 groups."""
    seed_points: dict[str, tuple[float, ...]] = field(default_factory=dict)
    """The same 64 places by seed, of the runs that learned a band."""
    key: str | None = None
    """metrics.jsonl in the store."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RankRow:
    """Seconds by phase of one rank, for the heat strip."""

    rank: int
    node: str
    phases: dict[str, float]
    """Seconds by word of PHASES; absent is zero."""
    step_seconds: float | None = None
    """Median."""
    peak_memory_bytes: int | None = None
    """Peak of the tensors on a GPU; on a CPU of the whole process, Python and torch with it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Samples:
    """What became of the positions in the order of samples, on the way that led to the final state."""

    trained: int
    lost: int = 0
    """Passed over though nothing said so."""
    repeated: int = 0
    """Trained more than once."""
    skipped: int = 0
    """Left out on purpose: their step was not finite."""
    again: int = 0
    """Samples of steps that were done again: they count once."""
    unknown: int = 0
    """Passed in steps that a checkpoint covers and no living rank reported."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RankUpdateCount:
    """Updates of whole matrices by one rank."""

    rank: int
    computed: int
    loads: dict[str, float] = field(default_factory=dict)
    """Planned seconds of one step by kind of matrix: its name without numbers."""
    seconds: float | None = None
    """Measured, of `computed`; None: not known."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LateUpdates:
    """Updates that reach ranks with copies during the next forward pass, on rank 0."""

    buckets: int
    """Buckets in which owners send them; a block waits for those with its parameters."""
    largest_elements: int
    """Elements of the largest bucket on that rank."""
    are_blocks: bool
    """A bucket is a block, as the plan chose; else the line gives `bucket_elements`."""
    outstanding_bytes: float
    """Bytes in memory until they are applied, by the plan."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MatrixUpdates:
    """Updates of whole matrices by the last generation of a training."""

    rule: str
    matrices: int
    steps: int
    wanted: int
    """One for each matrix with a gradient and each step."""
    bound_seconds: float
    """No map of owners has a smaller largest load, by the plan's seconds."""
    ranks: tuple[RankUpdateCount, ...] = ()
    """The first MOST_RANKS."""
    computed: int = 0
    """Updates of all ranks; equal to `wanted`, or one was computed too often or never."""
    repeats: int = 1
    """Copies of a matrix that each compute its update; `wanted` counts them all."""
    late: LateUpdates | None = None
    """None: steps waited for all updates."""

    MOST_RANKS: ClassVar[int] = 256


@dataclass(frozen=True, kw_only=True, slots=True)
class StartedFrom:
    """The checkpoint of another run that a training began with."""

    checkpoint: str
    step: int
    """Last step of that run: this one has those after it."""
    converted: int = 0
    """Fused parameters that were split or joined, state of the optimizer included; the plan names them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Training:
    """How fast the training was, and its restarts and saves, over all gangs of its stage, as reported by rank 0."""

    flops_per_second: float | None = None
    """Model arithmetic of the whole gang, median step."""
    wire_bytes_per_step: float | None = None
    """What rank 0 sent to other ranks over TCP."""
    resumes: dict[str, int] = field(default_factory=dict)
    """How often a generation resumed from `node` (the memory of its own nodes), `peer` (that of other nodes), `store`,
    `living` (replicas that were not lost)."""
    rollbacks: int = 0
    """Returns to a checkpoint within a generation: a step was not finite."""
    steps_redone: int = 0
    """Done again, because they were not in the checkpoint that training resumed from."""
    samples: Samples | None = None
    """None: a program that takes its samples itself."""
    started_from: StartedFrom | None = None
    """None: step 0."""
    matrix_updates: MatrixUpdates | None = None
    """None: its optimizer has no matrix rule, or its last gang did not end by itself."""
    workers: WorkersSummary | None = None
    """What the workers of a parameter server did; None: the run has none, or its objects are damaged."""


DiagnosisKind = Literal[
    "slow_rank", "slow_sender", "slow_receiver", "slow_path", "slow_leaf", "lossy_link", "sick_host", "stage_imbalance",
    "bound",
]  # fmt: skip
"""bound: what the speed of the training is bound by, its name one of data, network, imbalance, bubble, compute."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Remedy:
    """What to do about a diagnosis, for people and programs."""

    kind: Literal[
        "quarantine", "replace", "new_shares", "new_plan", "warm", "read_ahead", "network", "imbalance", "bubble",
        "compute",
    ]  # fmt: skip
    """warm: fetch data sets before training; read_ahead: that many workers; network, imbalance, bubble, compute: what
    is bound by them. quarantine: use the servers or links no more until they are tested; replace: give their ranks
    other servers; new_shares: another split of the samples over the replicas; new_plan: plan again, the servers are
    well."""
    names: tuple[str, ...] = ()
    """Servers, links, data sets or a number of workers; empty for shares and plans."""
    shares: tuple[int, ...] = ()
    """Samples of a step by replica."""
    saves_percent: float | None = None
    """Share of a step's time that `shares` save against equal ones if work grows with samples; None: not known."""
    most_percent: float | None = None
    """Bound on what any split saves, as a share of a step's time."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Diagnosis:
    """What is slow or lossy, why it is thought so, what it costs, and what to do."""

    kind: DiagnosisKind
    names: tuple[str, ...]
    """Ranks, servers, links or leaves; several where they cannot be distinguished."""
    evidence: str
    cost_percent: float | None
    """Share of a step's time that it costs the whole gang; None: not known."""
    action: Remedy


@dataclass(frozen=True, kw_only=True, slots=True)
class Ledger:
    """Rows sum to the allocation, to 0.1 %."""

    resource: Literal["gpu", "cpu"]
    allocated_seconds: float
    seconds: dict[str, float]
    """Seconds by cause of LEDGER_CAUSES; absent is zero."""

    @property
    def useful_share(self) -> float | None:
        """Share of the allocation that ranks computed in; None: no rank reported a step, as programs need not."""
        return self._share("compute")

    @property
    def effective_time(self) -> float | None:
        """Share of the allocated time in steps that count, waits included; None: not known."""
        return self._share("compute", "data", "wait", "bubble")

    def _share(self, *causes: str) -> float | None:
        if not self.seconds.get("compute") or not self.allocated_seconds:
            return None
        return sum(self.seconds.get(cause, 0.0) for cause in causes) / self.allocated_seconds


@dataclass(frozen=True, kw_only=True, slots=True)
class Proof:
    """How the checkpoint did under a second plan."""

    checkpoint: str
    plan: str
    """Second plan, e.g. `fsdp-2`."""
    tensors: int
    tensors_equal: int
    replay_steps: int = 0
    replay_difference: float | None = None
    """Largest difference in loss over the replayed steps."""
    same_loss: Answer = "unknown"
    """Is the replay's loss within the band (or, without one, within gate.parity)?"""
    loss_price: float | None = None
    """What lossy exchange of gradients cost: loss above the replay's, which has none, over the later half of its steps;
    None: the plan was not lossy."""
    reason: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Drill:
    """A fault that was injected on purpose, and what came of it."""

    name: str
    row: str
    """Row of the goal sheet, e.g. T1."""
    result: Literal["held", "held_late", "broken", "not_struck"]
    """held_late: nothing was lost, but recovery took longer than its target."""
    reason: str = ""
    """Why it broke, came late or did not strike."""
    seen: str = ""
    """Who noticed what, in a sentence."""
    detect_seconds: float | None = None
    recover_seconds: float | None = None
    lost_steps: int | None = None
    lost_seconds: float | None = None
    lost_samples: int | None = None
    """Samples in no step that counts; None: the steps did not say which samples they took."""
    repeated_samples: int | None = None
    """Samples in two steps that count; None: the steps did not say which samples they took."""
    arguments: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class MovedNode:
    """A node of a gang on another server than the one it was given."""

    node_rank: int
    placed: str
    found: str


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupEdges:
    """Edges of a ring over a gang's nodes from one group of servers to another, or inside one."""

    source: str
    target: str
    edges: int
    bytes_per_second: float | None = None
    """Measured between servers of these groups; None: not measured."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SplitTile:
    """Consecutive nodes that the plan wants in one group of servers, and that are in several."""

    first: int
    """Node rank."""
    last: int
    groups: tuple[str, ...]
    """Places of its nodes in their order, each `block/group`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RankOrder:
    """Locations of the nodes of a gang, compared with the servers that they were given; None: not known."""

    num_groups: int | None = None
    """Groups of servers that the gang touches."""
    crossings: int | None = None
    """Edges of a ring over its nodes that lead to another group; the least is one a group."""
    edges: tuple[GroupEdges, ...] = ()
    """The same by group; empty where groups are not known, or more than 64 pairs of them are neighbours."""
    num_moved: int = 0
    """Nodes on other servers than those they were given."""
    moved: tuple[MovedNode, ...] = ()
    """The first of them."""
    num_split: int | None = None
    """Tiles of the plan that are in several groups."""
    split: tuple[SplitTile, ...] = ()
    """The first of them."""
