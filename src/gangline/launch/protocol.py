"""The launcher contract: `Launcher`, its data, and the comparison by which a launcher adopts an existing gang.

`tests/contracts/launcher/` holds every implementation to it. An existing gang is adopted only if its PodSet equals
the wanted one, field by field.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any, Literal, Protocol

from gangline.errors import ConfigError, IntegrityError
from gangline.spec.gang.podset import PlacedServer, PodSet
from gangline.spec.gang.status import GangEnd, GangState
from gangline.spec.record import Waiting

Life = Literal["followed", "ended", "orphan", "unknown"]
"""State of a gang's run in its record: `ended` and `orphan` gangs are swept, `followed` and `unknown` ones stay."""


class GangGone(ConfigError):
    """The folder of a gang was deleted: nothing of it runs, and its last state is unknown."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Gang:
    """A gang that was created or adopted."""

    name: str
    uid: str
    podset: str
    """Digest of the PodSet from which it was created."""
    adopted: bool
    """It existed before the submit."""
    servers: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class GangStatus:
    """State of a gang at one time."""

    state: GangState
    stale_seconds: float = 0.0
    """Age of this status; more than 0 while the backend is unavailable."""
    joined: int = 0
    ranks: int = 0
    generation: int = 0
    restarts: int = 0
    waiting: str = ""
    """Why it waits, in one sentence."""
    servers: tuple[str, ...] = ()
    """Servers of its nodes in node-rank order, as far as known."""
    placed: tuple[PlacedServer, ...] = ()
    """Servers that a placer gave its nodes, in node-rank order; empty: none places them."""
    placed_by: str = "the placer"
    """Component that gave them, as a sentence names it."""
    tile: int = 1
    """Consecutive nodes that the plan wants in one group of servers."""


@dataclass(frozen=True, kw_only=True, slots=True)
class GangEvent:
    """A change that was seen while following a gang."""

    kind: Literal["state", "waiting", "progress", "restart", "note", "end"]
    text: str = ""
    status: GangStatus | None = None
    data: dict[str, Any] = field(default_factory=dict)
    """`progress`: a rank event of `spec.gang` (step, saved, evaluated, job_started, ...) as written."""
    end: GangEnd | None = None

    @property
    def waiting(self) -> Waiting:
        """Waiting of a record, made of an event of that kind."""
        until, starts_now = self.data.get("until"), self.data.get("would_start_now")
        return Waiting(who=self.text, until=until or None, would_start_now=starts_now or None)


@dataclass(frozen=True, kw_only=True, slots=True)
class LogLine:
    """One line that a rank wrote."""

    rank: int
    text: str
    source: Literal["live", "store"] = "live"


@dataclass(frozen=True, kw_only=True, slots=True)
class SweepResult:
    """What a sweep did with one gang."""

    name: str
    run: str
    life: Life
    deleted: bool
    uncollected_files: int = 0
    """Outputs of its program that were not collected; they keep its folder unless the sweep includes outputs."""
    uncollected_bytes: int = 0


class Launcher(Protocol):
    """Starts gangs, follows them and cleans up; all calls name a gang by the name of its PodSet."""

    def submit(self, podset: PodSet) -> Gang:
        """Create a gang, or adopt the one of that name; does not wait until it runs.

        Raises:
            IntegrityError: A gang of this name has another PodSet; the message names the fields that differ.
            CapacityError: There is no room now.
        """
        ...

    def require_folders(self) -> None:
        """Check that the folders of submitted gangs still exist.

        Raises:
            GangGone: A folder is missing for longer than a mount may be absent.
        """
        ...

    def status(self, name: str) -> GangStatus:
        """State of the gang, with one read; stale if the backend is unavailable, which is not an error."""
        ...

    def follow(self, name: str) -> Iterator[GangEvent]:
        """States, waiting reasons, progress and restarts until the gang's `end`; may be abandoned and called again.

        Raises:
            GangGone: Its folder was deleted.
        """
        ...

    def logs(
        self, name: str, *, ranks: Sequence[int] | None = (0,), since_seconds: float | None = None, follow: bool = False
    ) -> Iterator[LogLine]:
        """Log lines of `ranks` (None: all), of the last `since_seconds`; `follow`: until the gang ends."""
        ...

    def cancel(self, name: str, *, reason: str, save: bool = True) -> None:
        """Stop the gang, with a last checkpoint if `save`; returns once nothing of it runs. Idempotent."""
        ...

    def cancel_modules(self, run: str) -> None:
        """Stop what runs model code for a run outside its gangs; returns once nothing of it runs. Idempotent."""
        ...

    def renew(self, name: str) -> None:
        """Give a running gang its secrets again, as credentials expire or change; no effect once it has ended."""
        ...

    def collect(self, name: str) -> GangEnd:
        """How the gang ended. Raises `StillRunning` before that, `UsageError` if there is no such gang."""
        ...

    def sweep(self, *, now: datetime, life: Callable[[str], Life], with_outputs: bool = False) -> list[SweepResult]:
        """Delete the gangs of ended or orphaned runs; `life` gives the state of a run by its id.

        A folder with uncollected outputs stays, unless `with_outputs`.
        """
        ...


def require_equal(found: PodSet, wanted: PodSet) -> None:
    """Raises `IntegrityError` if the existing gang differs; the message names the fields."""
    if found != wanted:  # by value: JSON makes 20 of 20.0
        raise IntegrityError(
            f"gang {wanted.name} exists already with another PodSet: "
            f"{'; '.join(differing_fields(found, wanted))}; cancel it, or start another attempt"
        )


def differing_fields(found: PodSet, wanted: PodSet) -> list[str]:
    """`name: found -> wanted` of every field that differs."""
    ours, theirs = asdict(wanted), asdict(found)
    return [f"{name}: {theirs[name]!r} -> {ours[name]!r}" for name in ours if ours[name] != theirs[name]]
