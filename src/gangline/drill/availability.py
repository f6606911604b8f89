"""Effect of a store that was unavailable, full or slow on a gang: steps meanwhile, failed saves, first durable save."""

from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from gangline.drill.history import DrillHistory, Event, Injection
from gangline.errors import StorageError


@dataclass(frozen=True, kw_only=True, slots=True)
class Availability:
    """Effect of an outage of the store on a gang; seconds and steps of rank 0."""

    steps: int = 0
    """Steps finished during the fault."""
    usual_step: float | None = None
    """Median seconds of a step before it."""
    step_during: float | None = None
    """Median seconds of a step during it."""
    met_step: int | None = None
    """First step with a save during it; None if no save was due."""
    met_seconds: float | None = None
    failed: int = 0
    """Saves that the ranks reported as failed."""
    failed_seconds: float | None = None
    """Time from the injection to the first failure."""
    said: str = ""
    """Reason of the first failure."""
    durable_step: int | None = None
    """Step of the first durable save after the fault ended (of a slow store: after it began)."""
    durable_seconds: float | None = None
    """Seconds from then on."""
    gave_up: bool = False
    """A rank exited with 40, because no save succeeded for too long."""
    ended: bool = False
    """The gang has ended."""


def availability(history: DrillHistory, injection: Injection, *, slow: bool = False) -> Availability:
    """The effect of the outage `injection`; `slow` if the store only slowed down."""
    over = injection.mono + (injection.seconds or 0.0)
    during = history.steps(after=injection.mono, before=over)
    met = next((e for e in during if injection.saves_at(e["step"])), None)
    failed = _of_rank_0(history, "save_failed", after=injection.mono)
    saved = _of_rank_0(history, "saved", after=injection.mono if slow else over)
    durable = next((e for e in saved if met is not None and e["step"] >= met["step"]), None)
    since = injection.mono if slow else over
    codes = (e["code"] for e in history.keepers if e["event"] == "rank_exited" and e["mono"] > injection.mono)
    return Availability(
        steps=len(during),
        usual_step=_median_seconds(history.steps(before=injection.mono), injection.generation),
        step_during=_median_seconds(during, injection.generation),
        met_step=met["step"] if met else None,
        met_seconds=met["mono"] - injection.mono if met else None,
        failed=len(failed),
        failed_seconds=failed[0]["mono"] - injection.mono if failed else None,
        said=str(failed[0].get("reason", "")) if failed else "",
        durable_step=durable["step"] if durable else None,
        durable_seconds=durable["mono"] - since if durable else None,
        gave_up=StorageError.exit_code in codes,
        ended=any(e["event"] == "ended" for e in history.keepers),
    )


def describe_effect(effect: Availability) -> str:
    """One sentence: steps during the fault, failed saves, the first durable save."""
    failed = f", {effect.failed} save{'s' if effect.failed != 1 else ''} failed" if effect.failed else ""
    durable = f", then step {effect.durable_step} was durable" if effect.durable_step is not None else ""
    return f"{effect.steps} steps meanwhile{failed}{durable}"


def _of_rank_0(history: DrillHistory, name: str, *, after: float) -> list[Event]:
    return [e for e in history.ranks if e["event"] == name and e["rank"] == 0 and e["mono"] > after]


def _median_seconds(steps: list[Event], generation: int) -> float | None:
    times = [e["mono"] for e in steps if e["generation"] == generation]
    return median(later - earlier for earlier, later in pairwise(times)) if len(times) > 1 else None
