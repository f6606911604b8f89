"""What goes to a tracker's writer: a run, its points, the settings of the tracker; and the writer that takes them.

The standard library alone: writers run in an interpreter that may have nothing but the tracker's own package.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

TrackerKind = Literal["mlflow", "wandb", "tensorboard"]
Status = Literal["running", "finished", "failed", "killed"]


@dataclass(frozen=True, kw_only=True, slots=True)
class TrackedRun:
    """Identity and all that is not a point: one run of a tracker for all ranks and generations of a gangline run."""

    id: str
    """Run id of gangline; a tracker finds its own run by it."""
    project: str
    """Project of gangline: a run of the same id and another project is another run."""
    experiment: str
    name: str
    status: Status
    started_ms: int
    ended_ms: int | None = None
    group: str = ""
    """Search that the run is a trial of; empty: none."""
    parameters: dict[str, str] = field(default_factory=dict)
    """Effective keys of the line; never changed for one run."""
    tags: dict[str, str] = field(default_factory=dict)
    """Commit, branch, digests, plan, verdict, cost, ledger, pointers to artifacts with size and sha256."""


@dataclass(frozen=True, slots=True)
class Point:
    """One finite value; the same event gives the same point, time included."""

    metric: str
    step: int
    time_ms: int
    value: float


@dataclass(frozen=True, kw_only=True, slots=True)
class WriterSettings:
    """What a writer needs to know of its tracker."""

    kind: TrackerKind
    url: str | None = None
    token: str | None = field(default=None, repr=False)
    mode: Literal["online", "offline"] = "online"
    path: str = ""
    """Folder of files, of TensorBoard and of offline runs; absolute."""
    prefix: str = ""
    """Text before each metric, where the program writes into the same run: `gangline/`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Mirrored:
    """What a tracker has of a run, as it says itself."""

    place: str
    """Address or folder where a person looks at it."""
    step: int | None = None
    """Highest step of its points; None: it has none."""
    time_ms: int | None = None
    """Time of the newest point."""
    status: Status | None = None
    """None: not known."""
    size_bytes: int | None = None
    """Size of a folder of files."""
    id: str = ""
    """The tracker's own id of the run, where it is another one than ours."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MirroredModel:
    """One version of a model, and the aliases that name it."""

    name: str
    project: str
    version: int
    source: str
    """Address of its files in the store."""
    run: TrackedRun
    """The run that made it."""
    tags: dict[str, str] = field(default_factory=dict)
    aliases: dict[str, int | None] = field(default_factory=dict)
    """Alias -> the version that it named before, which a tracker that is behind still says."""

    @staticmethod
    def read(content: dict[str, Any]) -> "MirroredModel":
        """The model from plain JSON."""
        return MirroredModel(**{**content, "run": TrackedRun(**content["run"])})


class TrackerError(Exception):
    """The tracker did not take what it was sent; the message says what was wanted, what was found, what works."""


class Writer(Protocol):
    """Writes one run into one tracker; all calls may be repeated with equal arguments and change nothing then."""

    def begin(self, run: TrackedRun) -> None:
        """Find the tracker's run by `run.id` or make it; write parameters and tags.

        Raises:
            TrackerError: The tracker refuses; any other exception counts as one that may pass.
        """
        ...

    def write(self, points: Sequence[Point]) -> None:
        """Write points, in the order of their events; at most 1,000."""
        ...

    def finish(self, run: TrackedRun) -> None:
        """Write status, tags and end of a run that has ended."""
        ...

    def look(self, run: TrackedRun) -> Mirrored | None:
        """What the tracker has of the run, without `begin` and without making anything; None: it has no such run."""
        ...

    def close(self) -> None:
        """Let go of files and connections; the tracker's run may still go on."""
        ...
