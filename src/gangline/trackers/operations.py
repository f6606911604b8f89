"""What a tracker is sent for one run, from its record and its metrics: pure, and equal however often it is computed."""

from dataclasses import dataclass, field
from typing import Literal

Status = Literal["running", "finished", "failed", "killed"]


@dataclass(frozen=True, kw_only=True, slots=True)
class TrackedRun:
    """Identity and all that is not a point: one run of a tracker for all ranks and generations of a gangline run."""

    id: str
    """Run id of gangline; a tracker finds its own run by it."""
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
