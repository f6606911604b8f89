"""Interruptions of a training: their probability, the best interval of saves, and the time that is lost. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import median

from gangline.fabric.reliability.failures import gang_rate, interrupt_probability, mean_hours_between
from gangline.fabric.reliability.interval import best_interval, effective_share, steps_between_saves, write_seconds
from gangline.planner.settings import WEIGHT_BYTES
from gangline.spec.config.line import Line
from gangline.spec.config.site import SitePlanTable
from gangline.spec.forecast import Forecast, Term
from gangline.spec.plan import SaveCosts
from gangline.spec.profile import MeasuredRun

_HOUR = 3600.0


@dataclass(frozen=True, kw_only=True, slots=True)
class StorageCost:
    """What saves to one class of storage cost a gang that waits for them."""

    storage: str
    write_seconds: float
    """Seconds of one checkpoint."""
    interval_seconds: float
    """Seconds of training between two, with which the least is lost; infinite: one save is enough."""
    effective_share: float
    """Share of the time that becomes steps."""


def storage_costs(
    plan: SitePlanTable, *, gpus: int, servers: int, parameters: float, bytes_per_parameter: float
) -> list[StorageCost]:
    """Costs of each class of the site, the cheapest first, of a gang each of whose servers writes its share of a
    checkpoint."""
    mean = mean_seconds_between(plan, gpus=gpus, servers=servers)
    costs = []
    for name, rate in plan.storage.items():
        write = write_seconds(parameters * bytes_per_parameter, servers=servers, server_bytes_per_second=rate)
        interval = best_interval(write, mean)
        share = effective_share(interval, write, plan.restart_seconds, mean)
        costs.append(StorageCost(storage=name, write_seconds=write, interval_seconds=interval, effective_share=share))
    return sorted(costs, key=lambda cost: (-cost.effective_share, cost.storage))


def mean_seconds_between(plan: SitePlanTable, *, gpus: int, servers: int) -> float:
    """Time between two interruptions of the gang."""
    return _HOUR * mean_hours_between(gang_rate(plan.failures, gpus=gpus, servers=servers))


def restart_time(plan: SitePlanTable, history: Iterable[MeasuredRun]) -> Term:
    """Time from an interruption to the next step: the median of earlier runs alike, else what the site says."""
    measured = [run.restart_seconds for run in history if run.restart_seconds is not None]
    if measured:
        return Term(part="restart", seconds=median(measured), origin=f"measured n={len(measured)}")
    is_default = plan.restart_seconds == SitePlanTable().restart_seconds
    return Term(part="restart", seconds=plan.restart_seconds, origin="default" if is_default else "given")


def with_interruptions(
    forecast: Forecast, plan: SitePlanTable, *, restart: Term, gpus: int, servers: int, parameters: float,
    moment_bytes: float,
) -> Forecast:  # fmt: skip
    """`forecast` of a gang of GPUs with what saves, restarts and the start add to its time, its GPU-hours and money."""
    if forecast.wall_seconds is None:
        return forecast
    plan = replace(plan, restart_seconds=restart.seconds)
    costs = storage_costs(
        plan, gpus=gpus, servers=servers, parameters=parameters, bytes_per_parameter=WEIGHT_BYTES + moment_bytes
    )
    share = next((cost.effective_share for cost in costs if cost.storage == plan.saves_to), 1.0)
    wall = forecast.wall_seconds / share + plan.start_seconds if share else float("inf")
    longer = wall / forecast.wall_seconds if forecast.wall_seconds else 1.0
    rate = gang_rate(plan.failures, gpus=gpus, servers=servers)
    return replace(
        forecast.paid(longer),
        wall_seconds=wall,
        effective_share=share,
        restart=None if plan.saves_to is None else restart,
        interrupt_probability=interrupt_probability(rate, wall / _HOUR),
    )


_SAVES_A_RUN = 4

_FEWEST_STEPS_BETWEEN, _MOST_STEPS_BETWEEN = 10, 500


def save_costs_of(history: Sequence[MeasuredRun]) -> SaveCosts | None:
    """Costs of the runs in `history`, which are alike; None while none of them failed, or none saved."""
    saving = [run for run in history if run.save_seconds is not None and run.train_seconds]
    failures = sum(run.failures for run in saving)
    if not failures:
        return None
    return SaveCosts(
        blocking_seconds=median(run.save_seconds or 0.0 for run in saving),
        step_seconds=median(run.step_seconds for run in saving),
        seconds_between_failures=sum(run.train_seconds or 0.0 for run in saving) / failures,
    )


def save_every(line: Line, costs: SaveCosts | None = None) -> int:
    """Steps from one save to the next: the line's own number; `every = "auto"` loses least by what earlier runs cost.

    Before one of them failed it is a quarter of the steps, within [10, 500] and at most all of them.
    """
    requested, steps = line.train.checkpoint.every, line.train.steps
    if requested != "auto":
        return requested
    if costs is not None:
        return steps_between_saves(costs, most=steps)
    return min(max(steps // _SAVES_A_RUN, _FEWEST_STEPS_BETWEEN), _MOST_STEPS_BETWEEN, steps)
