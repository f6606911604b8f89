"""A search for settings: the table `[search]` of a line, what was asked, how each trial stands, what it answered.

The table says how a search is done and nothing about one training, so it is no part of a run's digest.

`searches/<project>/<id>/search.json` has the request; the trials are the journal next to it, their truth the records of
their runs. `SearchView` is what screens, reports and pages draw.
"""

from dataclasses import dataclass, field
from typing import Annotated, Literal

from gangline.spec.bounds import Bound
from gangline.spec.codec import Document
from gangline.spec.measurements import Better

MOST_TRIALS = 1000
_BUDGET = Bound(above=0, below=1e12, words="a number above 0", works="leave it out: the site's limit")

Scalar = bool | int | float | str
"""Value of a key that a search may set."""
Sampler = Literal["tpe", "random", "grid", "qmc", "gp", "nsga2"]
Pruner = Literal["halving", "median", "hyperband", "none", "population"]
TrialState = Literal["waiting", "running", "ended", "pruned", "failed"]
"""`waiting`: proposed, its gang has not begun; `ended`: its value counts."""
SearchEnding = Literal["trials", "budget", "patience", "stopped", "failures"]
"""Why no further trial is started; `failures`: five first ones in a row failed by their own fault."""
Verdict = Literal["BETTER", "SAME", "WORSE", "unconfirmed"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Dimension:
    """Values that one key may take: a range, or choices."""

    low: int | float | None = None
    """Least value of a range; whole bounds make whole values."""
    high: int | float | None = None
    """Greatest value of a range, itself included."""
    log: bool = False
    """Draw evenly by order of magnitude."""
    step: int | float | None = None
    """Distance of the values of a range; none: any value, of whole ones each."""
    choices: tuple[Scalar, ...] = ()
    """Values without an order, instead of a range."""

    @property
    def is_whole(self) -> bool:
        """Whether a range has whole numbers only."""
        return all(isinstance(each, int) for each in (self.low, self.high, self.step or 1))


@dataclass(frozen=True, kw_only=True, slots=True)
class SearchTable:
    """How `gangline search` looks for better settings; trials are runs of this line with `--set`."""

    space: dict[str, Dimension] = field(default_factory=dict)
    """Keys of this line that are searched, each with its range or choices."""
    metric: str | tuple[str, ...] | None = None
    """What is searched; none: the metric of the first quality gate. Two or more give a Pareto front."""
    better: Better | tuple[Better, ...] | None = None
    """Which direction is better, of each metric; none: as the quality gate of that metric says."""
    sampler: Sampler = "tpe"
    """Who proposes the settings of the next trial."""
    pruner: Pruner = "halving"
    """Who stops trials that fall behind; population: rounds of members that copy the best ones."""
    trials: Annotated[int, Bound(least=1, most=MOST_TRIALS, words=f"1 to {MOST_TRIALS}", works="40 is the default")] = (
        40
    )
    """Number of trials, 1 to 1,000."""
    parallel: Annotated[int | Literal["auto"], Bound(least=1, works="auto is as many as devices hold")] = "auto"
    """Trials at the same time; auto: free devices over the devices of one trial."""
    min_steps: Annotated[int | Literal["auto"], Bound(least=1, works="auto is train.steps / 27")] = "auto"
    """First rung; auto: train.steps / 27. Of a population the steps of a round; auto: all trials are used up."""
    reduction: Annotated[int, Bound(least=2, works="3 is the default")] = 3
    """One trial in so many goes on at each rung."""
    population: Annotated[int, Bound(least=4, most=50, words="4 to 50 members", works="8 is the default")] = 8
    """Members of a population, 4 to 50."""
    budget_gpu_hours: Annotated[float | None, _BUDGET] = None
    """Most device-hours of all trials and the confirmation; none: the site's limit."""
    budget_money: Annotated[float | None, _BUDGET] = None
    """Most money, in the site's currency."""
    patience: Annotated[int, Bound(least=0, works="0 never ends for lack of gain")] = 20
    """Trials without gain after which the search ends; 0: never."""
    confirm_seeds: int = 3
    """Fresh seeds that winner and base are trained with before the winner is called better; 0: no confirmation."""
    seed: Annotated[int, Bound(least=0, works="1 is the default")] = 1
    """Root of the randomness of proposals."""


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
