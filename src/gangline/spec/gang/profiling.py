"""Profiler windows of a training: the request, and the summary of each rank. Plain data."""

from dataclasses import dataclass, field
from typing import Literal

from gangline.errors import UsageError
from gangline.spec.codec import Document

MOST_STEPS = 100
"""Most steps of one window: a trace of more is too large to look at."""
MOST_RANKS = 64
CATEGORIES = ("matmul", "elementwise", "optimizer", "communication", "copy", "other", "idle")
"""What a moment of a rank is spent on."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ProfileRequest(Document):
    """A request to the ranks of a gang to profile a window of steps."""

    schema: int = 1
    first: int
    """First step of the window; one that is over already starts it at once."""
    last: int
    ranks: tuple[int, ...]
    word: str = ""
    """Random, so that the same window can be asked for again."""

    @property
    def name(self) -> str:
        """`FIRST-LAST`, which names its files."""
        return f"{self.first}-{self.last}"


@dataclass(frozen=True, kw_only=True, slots=True)
class ProfiledStep:
    """One step of the window on one rank."""

    step: int
    start: float
    """Seconds from the beginning of the window."""
    seconds: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Operator:
    """All calls of one operator in the window."""

    name: str
    category: str
    count: int
    self_seconds: float
    """Seconds without those of what it called."""
    total_seconds: float


@dataclass(frozen=True, kw_only=True, slots=True)
class ProfileSummary(Document):
    """What one rank did in the window."""

    schema: int = 1
    rank: int
    node: str = ""
    first: int
    """First step of the window, as asked."""
    last: int
    word: str = ""
    """Word of the request that it answers."""
    device: Literal["cpu", "cuda"]
    """Whose time is reported: that of the GPU, where there is one."""
    seconds: float
    """Length of the window."""
    steps: tuple[ProfiledStep, ...] = ()
    categories: dict[str, float] = field(default_factory=dict)
    """Seconds by category of CATEGORIES; they sum to the window, or to more where several threads work at once."""
    busy_share: float = 0.0
    """Share of the window with anything but communication under way."""
    exposed_share: float = 0.0
    """Share with communication alone under way."""
    hidden_share: float = 0.0
    """Share with communication under way during other work: what overlap saves."""
    idle_share: float = 0.0
    """Share with nothing under way that the profiler sees: Python, waiting for data, launching."""
    top: tuple[Operator, ...] = ()
    """Longest by their own time first."""
    lanes: dict[str, tuple[float, ...]] = field(default_factory=dict)
    """Share of each of equal pieces of the window, by category."""
    memory: tuple[tuple[float, float], ...] = ()
    """(seconds, bytes allocated), thinned; peaks stay."""
    peak_bytes: int = 0
    phases: tuple[tuple[float, str], ...] = ()
    """(seconds, phase that begins there), as the loop went; the last one lasts to the end."""
    peak_by_phase: dict[str, int] = field(default_factory=dict)
    """Most bytes allocated in each."""
    trace: str | None = None
    """File next to this one; None: it was too large to keep."""
    trace_bytes: int = 0


def folder_key(run_prefix: str) -> str:
    """Where everything of this kind lies."""
    return f"{run_prefix}/profiles"


def request_key(run_prefix: str) -> str:
    """Store key of the newest profile request of a run."""
    return f"{folder_key(run_prefix)}/request.json"


def parse_window(text: str) -> tuple[int, int]:
    """`100:110`, or one step: first and last.

    Raises:
        UsageError: Anything else, or too many steps.
    """
    first, colon, last = text.partition(":")
    if not (first.isdigit() and (last.isdigit() or not colon)):
        raise UsageError(f"wanted steps A:B, found {text!r}; 100:104 profiles five")
    window = int(first), int(last or first)
    if not 1 <= window[0] <= window[1] or window[1] - window[0] >= MOST_STEPS:
        raise UsageError(f"wanted A:B with 1 <= A <= B and at most {MOST_STEPS} steps, found {text}")
    return window
