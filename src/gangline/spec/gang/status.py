"""Status files of a gang: node status, end and results, and the request for another number of ranks.

The keeper writes them and launchers read them; neither imports the other.
"""

import json
from dataclasses import dataclass, field
from typing import Any, Literal

from gangline.errors import RetryClass
from gangline.spec.codec import Document
from gangline.spec.plan import Role

FIRST_GENERATION = "first-generation"
"""Name of that file."""
GangState = Literal["absent", "waiting", "starting", "running", "stopping", "ended"]


@dataclass(frozen=True, kw_only=True, slots=True)
class KeeperStatus:
    """What a keeper says of its node while it works."""

    node_rank: int
    pid: int
    start_time: int
    """Field 22 of /proc/PID/stat: pid and this together name a process."""
    state: GangState
    generation: int = 0
    restarts: int = 0
    ranks: dict[str, int] = field(default_factory=dict)
    """Rank to process id of the living."""
    joined: tuple[int, ...] = ()
    """Ranks that reached the rendezvous of this generation."""
    world_size: int = 0
    """Ranks of the whole gang in this generation; 0: as many as its podset has."""
    reason: str = ""
    """One sentence about the last restart, or why it stops."""


@dataclass(frozen=True, kw_only=True, slots=True)
class GangEnd:
    """How a gang ended; its class is that of the rank that failed first."""

    exit_code: int
    retry: RetryClass
    reason: str
    """One sentence: who, what, where to read on."""
    culprit: int | None = None
    """Rank that failed first."""
    generation: int = 0
    step: int | None = None
    saved_step: int | None = None
    """Step of the newest save that rank 0 reported after a stop request, 0: there is none. None: not known."""
    restarts: int = 0
    time: str = ""
    evidence: dict[str, Any] = field(default_factory=dict)
    """Signal, oom_kill count, last log lines, stacks by rank; of a good end, the traceback that a log ends with.
    `processes`: a `ProcessReport` of all generations."""
    ledger: dict[str, float] = field(default_factory=dict)
    """Seconds of all ranks of this node by cause; sums to `allocated_seconds`."""
    allocated_seconds: float = 0.0


def saved_text(step: int | None, saved_step: int | None) -> str:
    """What a stop saved of a training that had reached `step`: `nothing was saved: 42 steps are lost`."""
    if saved_step is None:
        return "what its program saved is not known"
    lost = (step or 0) - saved_step
    if lost > 0:
        since = f" after step {saved_step}" if saved_step else ""
        return f"nothing was saved{since}: {lost} step{'s are' if lost > 1 else ' is'} lost"
    return f"step {saved_step} is saved" if saved_step else "no step was finished"


@dataclass(frozen=True, kw_only=True, slots=True)
class WeightsFile:
    """Content of a file of weights, by digests."""

    sha256: str = ""
    """Digest of the file; empty if it is known by its blocks alone."""
    blocks: str = ""
    """SHA-256 over the digests of its blocks, as a save lists them; empty if it is known as a file alone."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WeightsEvaluation:
    """Metrics, and the weights that they were measured on."""

    step: int
    metrics: dict[str, float]
    weights: dict[str, WeightsFile] = field(default_factory=dict)
    """Files by path, or the folder of a checkpoint; a name in words if it is neither, none if it is not known."""


@dataclass(frozen=True, kw_only=True, slots=True)
class JobResult:
    """One training or evaluation inside a gang."""

    seed: int
    step: int
    metrics: dict[str, float] = field(default_factory=dict)
    """Held-out metrics at `step`."""
    not_finite: dict[str, str] = field(default_factory=dict)
    """Metrics that are `nan`, `inf` or `-inf`, which JSON has no numbers for."""
    losses: tuple[tuple[int, float], ...] = ()
    """(step, training loss), every step up to 4,096, then evenly thinned."""
    evaluations: tuple[WeightsEvaluation, ...] = ()
    """What was measured on which weights, as far as the program says, in order; the last of each weights."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TensorDigests:
    """Full tensors of one checkpoint, as opened under this gang's plan and as streamed from the stored chunks."""

    checkpoint: str
    total: int
    equal: int
    different: tuple[str, ...] = ()
    """First ten names."""


@dataclass(frozen=True, kw_only=True, slots=True)
class GangResult:
    """What the ranks leave at their end."""

    schema: int = 1
    role: Role = "train"
    final_step: int = 0
    checkpoint: str | None = None
    """Store prefix of the last complete checkpoint of a train gang."""
    jobs: tuple[JobResult, ...] = ()
    digests: TensorDigests | None = None
    metric_units: dict[str, str] = field(default_factory=dict)
    export_names: dict[str, str] = field(default_factory=dict)
    """Name of a tensor in the model -> its name in a published one; the others keep theirs."""


def read_event(line: str | bytes) -> dict[str, Any] | None:
    """One line of a file of events; None for a line that a dying process cut off, and for what is not an event."""
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return event if isinstance(event, dict) else None


@dataclass(frozen=True, kw_only=True, slots=True)
class ResizeRequest(Document):
    """Valid until another one replaces it, also for a gang that starts again."""

    schema: int = 1
    ranks: int


def resize_key(run_prefix: str) -> str:
    """Store key of the newest resize request of a run."""
    return f"{run_prefix}/resize.json"
