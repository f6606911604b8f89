"""`[search]` of a line as frozen data: which keys are tried, how many trials, what they may cost.

The table says how a search is done and nothing about one training, so it is no part of a run's digest.
"""

from dataclasses import dataclass, field
from typing import Annotated, Literal

from gangline.spec.bounds import Bound
from gangline.spec.measurements import Better

MOST_TRIALS = 1000
_BUDGET = Bound(above=0, below=1e12, words="a number above 0", works="leave it out: the site's limit")

Scalar = bool | int | float | str
"""Value of a key that a search may set."""
Sampler = Literal["tpe", "random", "grid", "qmc", "gp", "nsga2"]
Pruner = Literal["halving", "median", "hyperband", "none", "population"]


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
