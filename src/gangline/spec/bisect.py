"""Bisection: the search for the commit that made a metric worse; its request, the state of each commit, its result.

Stored as `bisects/<project>/<id>/state.json`, so that a later call resumes the search. The runs that it names are
ordinary records; this document refers to them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from gangline.spec.codec import Document
from gangline.spec.measurements import Better

Side = Literal["good", "bad", "unknown", "skipped"]
"""`unknown`: not asked yet, or not clear yet; `skipped`: it cannot be asked, or never became clear."""
Ending = Literal["found", "between", "same", "budget", "unfit"]
"""`found` one commit; `between`: only skipped ones are left; `same`: both ends do alike; `budget`: it is spent;
`unfit`: an end cannot be measured, or the bad one is the better one; the last note says which."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BisectCommit:
    """One commit of the history, oldest first; the first is the good end, the last the bad one."""

    sha: str
    subject: str = ""
    parents: int = 1
    side: Side = "unknown"
    values: dict[str, float | str] = field(default_factory=dict)
    """Metric by seed; `nan`, `inf` as words: JSON has no such numbers."""
    doubt: float | None = None
    """Chance that its side is wrong, given its values and those of both ends."""
    origin: str = ""
    """`records`, `trained`, `same as <commit>`; empty: nothing is known."""
    runs: tuple[str, ...] = ()
    seconds: float = 0.0
    """Seconds that this search held ranks for it."""
    reason: str = ""
    """Why it is skipped; or what else there is to say."""
    unreported: bool = False
    """It trains well and reports no value there, so another run of it has none either."""
    odd: bool = False
    """It does neither as the good end nor as the bad one."""

    @property
    def numbers(self) -> tuple[float, ...]:
        """Its values by seed, in order; infinite where a training diverged."""
        return tuple(float(value) for _, value in sorted(self.values.items(), key=lambda item: int(item[0])))


@dataclass(frozen=True, kw_only=True, slots=True)
class BisectState(Document):
    """One search for the first bad commit of a history: its bounds, its commits and what was measured at each."""

    schema: int = 1
    id: str
    project: str
    metric: str
    at: int
    """Step that values are of."""
    steps: int
    """Steps of the whole training, the smaller number of both ends."""
    better: Better | None = None
    """None: the bad end is worse by being other."""
    seeds: int
    """Seeds that each commit is trained with at first."""
    error: float
    """Bound on the chance that the answer is wrong."""
    resource: Literal["gpu", "cpu"] = "cpu"
    created: str = ""
    suspects: tuple[BisectCommit, ...] = ()
    ending: Ending | None = None
    first_bad: str | None = None
    """The answer, once it is found."""
    notes: tuple[str, ...] = ()
    """What is not as a bisection hopes: regressions that came and went, commits that do neither."""
    end_steps: tuple[int, ...] = ()
    """`train.steps` of both ends, where they differ: a change of it is not what a search at one step finds."""
    asked_at: int | None = None
    """Step that was asked for; None: `at` is where the courses of both ends part, or the last."""

    @property
    def spent_seconds(self) -> float:
        """Seconds of the devices that all its trainings took."""
        return sum(suspect.seconds for suspect in self.suspects)

    @property
    def sides(self) -> tuple[Side, ...]:
        """Side of each suspect, oldest first."""
        return tuple(suspect.side for suspect in self.suspects)

    @property
    def candidates(self) -> tuple[BisectCommit, ...]:
        """Those that may be the first bad one."""
        bisect_interval = interval(self.sides)
        return self.suspects[bisect_interval.good + 1 : bisect_interval.bad + 1]


@dataclass(frozen=True, slots=True)
class BisectInterval:
    """The commit that made it worse is after `good` and not after `bad`."""

    good: int
    bad: int


def interval(sides: Sequence[Side]) -> BisectInterval:
    """The last turn from good to bad that is known."""
    good = max(place for place, side in enumerate(sides) if side == "good")
    bad = next((place for place in range(good + 1, len(sides)) if sides[place] == "bad"), None)
    assert bad is not None, "the last commit of a history is bad"
    return BisectInterval(good, bad)
