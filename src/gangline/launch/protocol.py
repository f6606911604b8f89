"""The launcher contract: `Launcher`, its data, and the comparison by which a launcher adopts an existing gang.

`tests/contracts/launcher/` holds every implementation to it. An existing gang is adopted only if its PodSet equals
the wanted one, field by field.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any, Literal, Protocol

from gangline.errors import ConfigError, IntegrityError
from gangline.spec.gang.podset import PodSet
from gangline.spec.gang.status import GangEnd, GangState

Life = Literal["followed", "ended", "orphan", "unknown"]
"""What a record says of the run behind a gang: `ended` and `orphan` gangs are swept, `followed` and `unknown` stay."""


class GangGone(ConfigError):
    """Where a gang lived was deleted: nothing of it runs, and nobody can say how far it came."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Gang:
    """A gang that was created, or found."""

    name: str
    uid: str
    podset: str
    """Digest of the PodSet it was created from."""
    adopted: bool
    """It was there already."""
    servers: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class GangStatus:
    """How a gang stands right now."""

    state: GangState
    stale_seconds: float = 0.0
    """Age of this answer; more than 0 while the backend is away: unknown is never gone."""
    joined: int = 0
    ranks: int = 0
    generation: int = 0
    restarts: int = 0
    waiting: str = ""
    """Why it waits, in one sentence."""
    servers: tuple[str, ...] = ()
    """Where its nodes are, in node-rank order, as far as they are anywhere."""


@dataclass(frozen=True, kw_only=True, slots=True)
class GangEvent:
    """Something that changed while a gang was followed."""

    kind: Literal["state", "waiting", "progress", "restart", "note", "end"]
    text: str = ""
    status: GangStatus | None = None
    data: dict[str, Any] = field(default_factory=dict)
    """`progress`: a rank event of `spec.gang` (step, saved, evaluated, job_started, ...) as it was written."""
    end: GangEnd | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class LogLine:
    """One line that a rank wrote."""

    rank: int
    text: str
    source: Literal["live", "store"] = "live"


@dataclass(frozen=True, kw_only=True, slots=True)
class SweepResult:
    """A gang that a sweep looked at."""

    name: str
    run: str
    life: Life
    deleted: bool
    uncollected_files: int = 0
    """That its program wrote and nobody collected; they keep its folder, unless they are to go, too."""
    uncollected_bytes: int = 0


class Launcher(Protocol):
    def submit(self, podset: PodSet) -> Gang:
        """Create, or adopt what stands under that name, at once.

        Raises:
            IntegrityError: A gang of this name stands with another PodSet digest; the fields that differ are named.
            CapacityError: No room now.
        """
        ...

    def demand_place(self) -> None:
        """Is all that was submitted here still where it was put?

        Raises:
            GangGone: A gang's place was deleted, and is missing for longer than a mount may be away.
        """
        ...

    def status(self, name: str) -> GangStatus:
        """One read; a backend that is away gives a stale answer, no error."""
        ...

    def follow(self, name: str, *, after: dict[int, int] | None = None) -> Iterator[GangEvent]:
        """States, waiting sentences, progress, restarts; then the gang's `end`. May be abandoned and called again.

        Raises:
            GangGone: Where it lived was deleted meanwhile.
        """
        ...

    def logs(
        self, name: str, *, ranks: Sequence[int] | None = (0,), since_seconds: float | None = None, follow: bool = False
    ) -> Iterator[LogLine]:
        """Lines of some ranks (None: all)."""
        ...

    def cancel(self, name: str, *, reason: str, save: bool = True) -> None:
        """Stop it, with an emergency checkpoint when `save`; idempotent; returns when nothing is left running."""
        ...

    def renew(self, name: str) -> None:
        """Give a gang that runs its secrets again: credentials end, or change. One that has ended gets none."""
        ...

    def collect(self, name: str) -> GangEnd:
        """How it ended. Raises `StillRunning` before that, `UsageError` where there is no such gang."""
        ...

    def sweep(self, *, now: datetime, life: Callable[[str], Life], with_outputs: bool = False) -> list[SweepResult]:
        """Delete what belongs to an ended or orphaned run; `life` is asked with the run id.

        A folder with files that a program wrote and nobody collected stays, unless `with_outputs`.
        """
        ...


def demand_equal(found: PodSet, wanted: PodSet) -> None:
    """Raises `IntegrityError` that names the fields in which the gang that stands differs from the wanted one."""
    if found != wanted:  # by value: JSON makes 20 of 20.0
        raise IntegrityError(
            f"gang {wanted.name} stands already and was asked for differently: "
            f"{'; '.join(differing_fields(found, wanted))}; cancel it, or start another attempt"
        )


def differing_fields(found: PodSet, wanted: PodSet) -> list[str]:
    """`name: found -> wanted` of every field that differs."""
    ours, theirs = asdict(wanted), asdict(found)
    return [f"{name}: {theirs[name]!r} -> {ours[name]!r}" for name in ours if ours[name] != theirs[name]]
