"""Types of a comparison of two runs: numbers, curves, changes. Plain data."""

from dataclasses import dataclass, field
from typing import Literal

from gangline.report.facts import Side
from gangline.spec.measurements import Band

Outcome = Literal["BETTER", "SAME", "WORSE", "NOT COMPARABLE"]
Kind = Literal["line", "code", "package", "environment", "data", "plan", "device", "seed", "read"]


@dataclass(frozen=True, kw_only=True, slots=True)
class ComparedNumber:
    """One quantity in both runs."""

    name: str
    base: float
    this: float
    unit: str = ""
    band: Band | None = None
    side: Side = "unknown"
    """Side of the band; `unknown` where there is none. Only metrics decide the outcome, time and memory never do."""
    of: str = ""
    """Run that `this` took the number from, as it trained nothing itself; empty: its own."""

    @property
    def change(self) -> float | None:
        """Relative to the middle of the band, else to the base; None also for a number of another run."""
        if self.of:
            return None
        reference = self.band.center if self.band else self.base
        return self.this / reference - 1 if reference else None


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """One input that differs between two runs."""

    kind: Kind
    name: str
    base: str
    this: str


@dataclass(frozen=True, kw_only=True, slots=True)
class FileChange:
    """One file that differs between two commits."""

    path: str
    added: int | None = None
    """Lines; None: not a text, or not counted."""
    removed: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class ComparedCurves:
    """Both curves at the steps that both have."""

    metric: str
    steps: tuple[int, ...]
    base: tuple[float, ...]
    this: tuple[float, ...]
    low: tuple[float | None, ...] = ()
    """Band of the base at these steps; empty where it has none."""
    high: tuple[float | None, ...] = ()
    apart_from: int | None = None
    """Step of the first of three points running outside that band."""
    equal: bool = False
    """Bit by bit, at every step."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RunLabel:
    """Identification of a run for people."""

    run: str
    commit: str
    subject: str
    branch: str | None = None
    verdict: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class ComparisonContext:
    """Facts that are not in the records; a caller with the repository and the store may add them."""

    files: tuple[FileChange, ...] = ()
    base_packages: dict[str, str] = field(default_factory=dict)
    """Version by name."""
    this_packages: dict[str, str] = field(default_factory=dict)
    bands: dict[int, tuple[float, float]] = field(default_factory=dict)
    """Band of the base's curve by step, learned from its seeds."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """Comparison of two runs: the outcome and its evidence."""

    base: str
    """Run id."""
    this: str
    outcome: Outcome
    why: str
    metrics: tuple[ComparedNumber, ...]
    costs: tuple[ComparedNumber, ...]
    """Step time, memory, GPU-hours, as measured."""
    only_base: tuple[str, ...] = ()
    """Metrics that this run lacks; if one of them was judged, the runs are not comparable."""
    only_this: tuple[str, ...] = ()
    """Metrics that the base lacks."""
    changes: tuple[Change, ...]
    unpinned: tuple[str, ...] = ()
    """What else may have changed, as no record has its content."""
    plan: str
    outside_from: int | None
    """Step from which the training curve leaves the base's band."""
    next_command: str
    curves: ComparedCurves | None = None
    files: tuple[FileChange, ...] = ()
    labels: tuple[RunLabel, ...] = ()
    """Labels of base and this run, in this order."""
