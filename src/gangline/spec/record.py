"""Record: the single truth of one run. Reports, comments and comparisons are drawn from it and from nothing else.

At most 256 KiB as JSON at 256 ranks and 10,000 steps; what is larger is an artifact, referred to by digest.
`commit` and `inputs`, and after submit `plan`, never change. How it is written is known to `line` alone.
"""

from dataclasses import dataclass, field
from typing import Any, Literal

from gangline.spec.codec import Document
from gangline.spec.federated import FederationResult
from gangline.spec.forecast import Forecast
from gangline.spec.launchers import LAUNCHERS, LauncherTraits, RanksAt
from gangline.spec.measurements import (
    Answer,
    Curve,
    Diagnosis,
    Drill,
    Ledger,
    Metric,
    Proof,
    RankOrder,
    RankRow,
    Training,
)
from gangline.spec.mesh import Mesh
from gangline.spec.plan import Candidate
from gangline.spec.processes import ProcessReport
from gangline.spec.program_files import OmittedFile, OutputFile, RuntimeReport

STAGES = ("resolve", "build", "plan", "submit", "train", "evaluate", "gate", "prove", "publish", "report")
"""Every run has these, in this order."""
SLOW = "straggler"
"""Kind of an event that names a rank which held the gang up."""
NOT_JUDGED = "stragglers_not_judged"
"""Event of a gang whose waits are not measured, so that no rank can be called slow."""
SPLIT = "split"
"""Kind of an event that names tiles of the plan which are in several groups of servers."""
ENVIRONMENT = "environment"
"""Kind of an event that names variables which the program does not get."""
UNREPORTED = "unreported"
"""Kind of an event that names what a program should have reported and did not."""
UNDECLARED = "undeclared"
"""Kind of an event that names files which were read, and that the line does not declare."""
RETRAINED = "retrained"
"""Kind of an event that says why an earlier training with the same key was not taken."""
RETRY = "retry"
"""Kind of an event that says why another gang, or another try of a stage, follows."""
STOPPED = "stopped"
"""Kind of an event that says what a gang had saved when it was stopped, and its run stayed open."""
UNPROTECTED = "unprotected"
"""Kind of an event that says why the commit is part of no branch that publishes."""

StageState = Literal["waiting", "running", "done", "taken", "skipped", "failed", "cancelled"]
RunState = Literal["open", "ended"]
Verdict = Literal["passed", "refused", "failed", "cancelled", "superseded"]
Trust = Literal["own", "fork"]
"""Whose code it is: of people who may push here, or a stranger's."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Driver:
    """Who drives a run, by the lease it holds."""

    kind: Literal["run", "stage", "kfp", "jenkins", "serve"] = "run"
    holder: str = ""
    """Host, process id and a random word of who drives."""
    token: int = 0
    """Fencing token of its lease; an older one may not write."""
    url: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class RunInfo:
    """Name, state and result of the run."""

    id: str
    project: str
    attempt: int = 1
    created: str
    """UTC, ISO 8601, for people."""
    driver: Driver = Driver()
    target: RanksAt = "local"
    """Where its gangs run; fixed at its birth, so that everybody looks for them there."""
    state: RunState = "open"
    verdict: Verdict | None = None
    reason: str = ""
    exit_code: int | None = None
    cancel_requested: str | None = None
    """Reason given by `gangline cancel`, or `superseded by <run>`; the driver and the gang obey it."""
    approved: str | None = None
    """Who let a fork's run submit its gang, and when; none: it is not approved."""

    @property
    def launcher(self) -> LauncherTraits:
        """What depends on where its gangs run."""
        return LAUNCHERS[self.target]


@dataclass(frozen=True, kw_only=True, slots=True)
class Base:
    """The run that this one is compared with."""

    commit: str
    run: str


@dataclass(frozen=True, kw_only=True, slots=True)
class CommitInfo:
    """What is built; fixed at the run's birth."""

    sha: str
    tree: str
    branch: str | None = None
    pull_request: int | None = None
    subject: str = ""
    """Cleaned, at most 200 characters."""
    patch: str | None = None
    """Blob key of a dirty tree's difference; such a run is never published."""
    base: Base | None = None
    trust: Trust = "own"
    protected: bool = False
    """It is part of a branch that the project publishes from, as git said when the run was created."""
    rules: str | None = None
    """Commit of the protected branch whose line gave the rules (gate, publish, base image, holdout); none: its own."""
    repository: str | None = None
    """Address of the repository that it was taken from: `HOST/PATH`, or a folder; none: the record is older."""
    changed: tuple[str, ...] = ()
    """Paths that differ from the base, at most 100."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Inputs:
    """Everything that decides the result, by digest: equal inputs, equal run."""

    line: str
    """Digest of the effective line."""
    tables: dict[str, str] = field(default_factory=dict)
    """Digest of each table of the line."""
    code: str = ""
    environment: str = ""
    image: str | None = None
    data: str = ""
    datasets: tuple[str, ...] = ()
    """Versions of data sets that were trained on, `wiki@3f2a91c4`; `data` is made of their digests."""
    seeds: tuple[int, ...] = ()
    overrides: tuple[str, ...] = ()
    """What was set on the command line over the commit's line (`train.seed=2`): such a run is an experiment."""
    versions: dict[str, str] = field(default_factory=dict)
    """gangline, python, torch, numpy of who created the run; `ran` has those of the ranks, which may be others."""
    values: dict[str, Any] = field(default_factory=dict)
    """The effective line itself, flat `table.key -> value`, so that two records can be compared alone."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanInfo:
    """The plan that was chosen, why, and what it lost against."""

    digest: str
    key: str
    name: str
    strategy: str
    mesh: Mesh
    world_size: int
    steps: int
    global_batch: int
    micro_batch: int
    shares: tuple[int, ...] = ()
    """Samples of a step by replica with which it began; empty: equal ones."""
    precision: str
    device: str
    device_name: str = ""
    """The driver's name of the GPU; empty where cores compute, and in records that do not say."""
    reason: str
    candidates: tuple[Candidate, ...] = ()
    """Winner first, then runner-up, then losers."""
    forecast: Forecast = Forecast()
    measured: Forecast = Forecast()
    network: str = ""
    """Cost of its order of servers on the stated network, in a line; empty: none is stated, or none holds the plan."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Waiting:
    """Why a gang does not run yet."""

    who: str
    until: str | None = None
    would_start_now: str | None = None
    """The largest gang of such pods for which there is room."""


@dataclass(frozen=True, kw_only=True, slots=True)
class GangInfo:
    """The gang that trains, or did."""

    launcher: str
    name: str
    uid: str
    podset: str
    """Digest of the PodSet."""
    servers: tuple[str, ...] = ()
    order: RankOrder | None = None
    """Rank order on `servers`, once all nodes run; none: no scheduler reported them, or not all run yet."""
    admitted: str | None = None
    """When a driver first saw that it had servers: from Kueue, a placer or the scheduler. Not when it was submitted."""
    released: str | None = None
    waiting: Waiting | None = None
    generations: int = 1
    restarts: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class StageInfo:
    """State of a stage; it moves forward only."""

    state: StageState = "waiting"
    key: str | None = None
    """Digest over what the stage reads; equal key, equal result."""
    started: str | None = None
    ended: str | None = None
    seconds: float | None = None
    """While a driver was at work on it, and between two drivers or looks for as long as its gang went on."""
    counted_until: str | None = None
    """Time up to which `seconds` counts a stage that runs."""
    tries: int = 0
    exit: int | None = None
    message: str = ""
    """The line the user saw."""
    taken_from: str | None = None
    """Run whose result this is."""
    log: str | None = None
    outputs: dict[str, Any] = field(default_factory=dict)
    """What later stages read; small."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Gate:
    """One named question to the run and its answer."""

    name: str
    """budget, reproducible, processes, outputs, quality:<metric>, ..."""
    verdict: Answer
    reason: str
    evidence: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Artifact:
    """Something that the run left in the store."""

    kind: str
    """model, checkpoint, save, metrics, outputs, report, junit, log, sbom, provenance, signature, card, config, patch,
    code, plan, certificate, ranks, dataset."""
    key: str
    media_type: str
    size_bytes: int
    sha256: str
    path: str | None = None
    """Path in the folder of its key, where the key does not spell it: a store has fewer characters than programs."""


@dataclass(frozen=True, kw_only=True, slots=True)
class OutputsInfo:
    """What the program wrote and the line asked for: how much it is, and where the list of it lies."""

    key: str
    """Store key of the list, an artifact of kind `outputs`; each file lies next to it as `outputs/<sha256>`."""
    num_files: int = 0
    size_bytes: int = 0
    files: tuple[OutputFile, ...] = ()
    """The first 32 by path; the list has all."""
    left_out: tuple[OmittedFile, ...] = ()
    """What was asked for and not kept, with the reason; at most 10."""
    num_left_out: int = 0
    refused: str = ""
    """Why nothing was kept."""
    unused: tuple[str, ...] = ()
    """Globs that named no file."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Event:
    """One thing that happened, for people; a record keeps the last 200."""

    time: str
    stage: str
    kind: str
    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Seal:
    """Signature of a driver over all of a record that later stages, other runs and promotion rely on."""

    key_id: str
    signature: str
    """Elliptic signature, base64."""
    form: int = 2
    """How the signed bytes are made of the record."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Record(Document):
    """Everything that is known of a run; its parts are filled in as stages end."""

    schema: int = 2
    """1: not sealed, and its gangs wrote next to the record."""
    seq: int = 0
    nonce: str = ""
    """Random at each write: an unknown answer is settled by reading it back."""
    seal: Seal | None = None
    """None: written by a gangline that sealed nothing, or by something else."""
    run: RunInfo
    commit: CommitInfo
    inputs: Inputs
    plan: PlanInfo | None = None
    gang: GangInfo | None = None
    stages: dict[str, StageInfo] = field(default_factory=dict)
    metrics: dict[str, Metric] = field(default_factory=dict)
    curve: Curve = Curve()
    ranks: tuple[RankRow, ...] = ()
    """The slowest 32, the fastest 8, a sample of the rest; at most 64."""
    diagnoses: tuple[Diagnosis, ...] = ()
    """What was found slow in the gang that trained, at its end."""
    training: Training | None = None
    federated: FederationResult | None = None
    ran: RuntimeReport | None = None
    """What the training's ranks reported of themselves; None: they reported nothing."""
    processes: ProcessReport | None = None
    """How the processes of training and evaluation ended; None: it was not reported."""
    ledger: Ledger | None = None
    gates: tuple[Gate, ...] = ()
    proof: Proof | None = None
    drills: tuple[Drill, ...] = ()
    links: dict[str, str] = field(default_factory=dict)
    artifacts: tuple[Artifact, ...] = ()
    outputs: OutputsInfo | None = None
    """None: the line asks for none, or its training has left none yet."""
    events: tuple[Event, ...] = ()

    @property
    def prefix(self) -> str:
        """Where everything of the run lies in the store."""
        return run_prefix(self.run.project, self.commit.sha, self.run.id)

    @property
    def gang_prefix(self) -> str:
        """Where its gangs write: the only place, and nothing there is believed without being checked."""
        return self.prefix if self.schema < 2 else gang_prefix(self.prefix)


def run_prefix(project: str, commit: str, run: str) -> str:
    """`runs/<project>/<commit>/<run>`."""
    return f"runs/{project}/{commit}/{run}"


def gang_prefix(run_prefix: str) -> str:
    """Where the gangs of a run write, below everything of the run."""
    return f"{run_prefix}/gang"
