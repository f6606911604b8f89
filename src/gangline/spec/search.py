"""A search for settings: what it was asked, how each trial stands, what it answered.

`searches/<project>/<id>/search.json` has the request; the trials are the journal next to it, their truth the records of
their runs. `SearchView` is what screens, reports and pages draw.
"""

from dataclasses import dataclass, field
from typing import Literal

from gangline.spec.codec import Document
from gangline.spec.measurements import Better
from gangline.spec.search_table import Dimension, Pruner, Sampler, Scalar

TrialState = Literal["waiting", "running", "ended", "pruned", "failed"]
"""`waiting`: proposed, its gang has not begun; `ended`: its value counts."""
SearchEnding = Literal["trials", "budget", "patience", "stopped", "failures"]
"""Why no further trial is started; `failures`: five first ones in a row failed by their own fault."""
Verdict = Literal["BETTER", "SAME", "WORSE", "unconfirmed"]


@dataclass(frozen=True, kw_only=True, slots=True)
class SearchRequest(Document):
    """One search as it was asked; equal for every driver with the same commit and space."""

    schema: int = 1
    id: str
    """`s-<8 digits of the commit>-<4 letters>`."""
    project: str
    commit: str
    branch: str | None = None
    subject: str = ""
    base: str | None = None
    """Run of the commit as it is, whose values trials are compared with while the search runs."""
    overrides: tuple[str, ...] = ()
    """`--set` of the search itself, which every trial has."""
    space: dict[str, Dimension]
    metrics: tuple[str, ...]
    better: tuple[Better, ...]
    """Direction of each metric."""
    measured_by: str
    """Metric that rungs are judged by: that of the search, or `loss` of the training where it is measured at the end
    only."""
    sampler: Sampler
    pruner: Pruner
    population: int = 8
    seed: int
    steps: int
    """Steps of a whole trial."""
    rungs: tuple[int, ...] = ()
    """Steps at which trials are judged, in order; the last step is none."""
    reduction: int = 3
    resource: Literal["gpu", "cpu"] = "cpu"
    currency: str = "EUR"
    created: str


@dataclass(frozen=True, kw_only=True, slots=True)
class SearchLimits(Document):
    """What a search may use; a later call may raise it."""

    schema: int = 1
    trials: int
    parallel: int
    budget_hours: float | None = None
    """Device-hours."""
    budget_money: float | None = None
    patience: int = 20
    confirm_seeds: int = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class Trial:
    """One trial as its run's record tells it."""

    number: int
    state: TrialState
    settings: dict[str, Scalar]
    run: str = ""
    """Id of its run; known before the run starts."""
    values: tuple[float, ...] = ()
    """One value for each metric of the search, once it has ended."""
    at_rungs: dict[int, float] = field(default_factory=dict)
    """Metric of rungs by step."""
    step: int = 0
    """Steps that it has trained."""
    device_hours: float = 0.0
    money: float | None = None
    reason: str = ""
    """Why it was pruned, failed, or waits."""
    taken: bool = False
    """Whether the run existed before the search asked for it."""
    parent: int | None = None
    """Number of the trial whose checkpoint it began from."""
    round: int | None = None
    """Round of a population."""
    differs: str = ""
    """What the record of its run says other than the journal; empty: nothing."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SearchAnswer(Document):
    """The winner and the base on the same fresh seeds; `searches/<project>/<id>/answer.json`."""

    schema: int = 1
    trial: int
    settings: dict[str, Scalar]
    verdict: Verdict
    metric: str
    runs: tuple[str, str] | None = None
    """Runs of the confirmation: winner, base."""
    winner: float | None = None
    base: float | None = None
    band_percent: float | None = None
    reason: str = ""
    """Why it is unconfirmed, or what there is to say."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SearchView:
    """A search as it stands: all that a screen or a page shows."""

    request: SearchRequest
    limits: SearchLimits
    trials: tuple[Trial, ...]
    best: int | None = None
    """Number of the best ended trial."""
    front: tuple[int, ...] = ()
    """Numbers of the Pareto front, of two or more metrics."""
    spent_hours: float = 0.0
    spent_money: float | None = None
    importance: dict[str, float] = field(default_factory=dict)
    """Share of each key in the differences of the metric, largest first; empty: too few trials."""
    importance_by: str = ""
    """Method of `importance`: fANOVA, PED-ANOVA."""
    ending: SearchEnding | None = None
    answer: SearchAnswer | None = None
    base_values: tuple[float, ...] = ()
    """Values of the base run, one for each metric."""
