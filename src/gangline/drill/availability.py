"""Effect of a store that was unavailable, full or slow on a gang: steps meanwhile, failed saves, first durable save."""

from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from gangline.drill.history import DrillHistory, Event, Injection
from gangline.errors import StorageError


@dataclass(frozen=True, kw_only=True, slots=True)
class Availability:
    steps: int = 0
    """Finished while the fault lasted."""
    usual_step: float | None = None
    """Median seconds before it."""
    step_during: float | None = None
    """Median seconds while it lasted."""
    met_step: int | None = None
    """First step whose save fell into it; None: no save was due."""
    met_seconds: float | None = None
    failed: int = 0
    """Saves that the ranks reported as failed."""
    failed_seconds: float | None = None
    """From the strike to the first."""
    said: str = ""
    """Why that one failed."""
    durable_step: int | None = None
    """Of the first save that was durable once the fault was over (a slow store: once it began)."""
    durable_seconds: float | None = None
    """From then."""
    gave_up: bool = False
    """A rank left with 40 because nothing could be saved for too long."""
    ended: bool = False
    """The gang has."""


def availability(history: DrillHistory, strike: Injection, *, slow: bool = False) -> Availability:
    """Of the outage that `strike` began."""
    over = strike.mono + (strike.seconds or 0.0)
    during = history.steps(after=strike.mono, before=over)
    met = next((e for e in during if strike.saves_at(e["step"])), None)
    failed = _of_rank_0(history, "save_failed", after=strike.mono)
    saved = _of_rank_0(history, "saved", after=strike.mono if slow else over)
    durable = next((e for e in saved if met is not None and e["step"] >= met["step"]), None)
    since = strike.mono if slow else over
    codes = (e["code"] for e in history.keepers if e["event"] == "rank_exited" and e["mono"] > strike.mono)
    return Availability(
        steps=len(during),
        usual_step=_median_seconds(history.steps(before=strike.mono), strike.generation),
        step_during=_median_seconds(during, strike.generation),
        met_step=met["step"] if met else None,
        met_seconds=met["mono"] - strike.mono if met else None,
        failed=len(failed),
        failed_seconds=failed[0]["mono"] - strike.mono if failed else None,
        said=str(failed[0].get("reason", "")) if failed else "",
        durable_step=durable["step"] if durable else None,
        durable_seconds=durable["mono"] - since if durable else None,
        gave_up=StorageError.exit_code in codes,
        ended=any(e["event"] == "ended" for e in history.keepers),
    )


def describe_felt(felt: Availability) -> str:
    """One sentence: what went on, what failed, what was durable then."""
    failed = f", {felt.failed} save{'s' if felt.failed != 1 else ''} failed" if felt.failed else ""
    durable = f", then step {felt.durable_step} was durable" if felt.durable_step is not None else ""
    return f"{felt.steps} steps meanwhile{failed}{durable}"


def _of_rank_0(history: DrillHistory, name: str, *, after: float) -> list[Event]:
    return [e for e in history.ranks if e["event"] == name and e["rank"] == 0 and e["mono"] > after]


def _median_seconds(steps: list[Event], generation: int) -> float | None:
    times = [e["mono"] for e in steps if e["generation"] == generation]
    return median(later - earlier for earlier, later in pairwise(times)) if len(times) > 1 else None
