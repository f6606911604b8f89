"""Budget gate: bounds of line and site against a forecast, before anything is queued, and against what was measured."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gangline.errors import ConfigError
from gangline.spec.config.line import PlanTable
from gangline.spec.config.site import LimitsTable
from gangline.spec.forecast import Forecast
from gangline.spec.measurements import Answer
from gangline.spec.plan import Verdict
from gangline.spec.record import Gate
from gangline.units import format_number, format_step

_TIME = "time"

Answered = tuple[Answer, str]
"""Verdict on one bound, and its sentence."""

_NOTHING = 1e-9
"""Value in place of a bound of 0, so that the plan nearest to it is the cheapest."""


@dataclass(frozen=True, slots=True)
class PlanReason:
    """Verdict on a plan, and its sentence; nothing reads the sentence back."""

    verdict: Verdict
    words: str
    ratio: float = 0.0
    """How many times a bound it needs; 0: no bound decides."""


def excess(
    bounds: PlanTable, limits: LimitsTable, forecast: Forecast, *, band: float = 0.0, seeds: int = 1
) -> PlanReason | None:
    """The bound that `forecast` is furthest beyond, also by a first forecast; None: it is beyond none, or nothing is
    known.

    Arguments are those of `check`.
    """
    edge = 1.0 if forecast.is_first else 1 + band
    beyond = [
        PlanReason(
            "late" if name == _TIME else "over_budget", ratio=known * edge / max(bound, _NOTHING),
            words=f"{name}: {_shown(name, known * edge)} forecast, at most {_shown(name, bound)}",
        )
        for name, bound, known in _bounds(bounds, limits, forecast, seeds)
        if known is not None and known * edge > bound
    ]  # fmt: skip
    return max(beyond, key=lambda reason: reason.ratio, default=None)


def check(
    bounds: PlanTable, limits: LimitsTable, forecast: Forecast, *, band: float = 0.0, nearest: str = "", seeds: int = 1
) -> Gate:
    """Yes, no or unknown: the tightest bound of each kind against the forecast's upper edge.

    Args:
        bounds: Of the line.
        limits: Of the site.
        forecast: Of the chosen plan.
        band: Share by which a forecast of time may be short.
        nearest: Name of the plan, where others were weighed and are further beyond.
        seeds: Trainings of this length that the line asks for: each costs as much as the first.

    Raises:
        ConfigError: The line's own bound is above the site's.
    """
    _require_within(bounds, limits)
    answers = list(_answers(bounds, limits, forecast, band, seeds))
    return _gate(answers, origin=forecast.origin, band=band, nearest=nearest, seeds=seeds)


def check_measured(
    bounds: PlanTable, limits: LimitsTable, measured: Forecast, forecast: Forecast, *, band: float = 0.0, seeds: int = 1
) -> Gate:
    """The verdict after the trainings: what was `measured` counts, and the forecast where nothing was.

    Args are those of `check`; hours and money of `measured` are those of all seeds.
    """
    expected = _answers(bounds, limits, forecast, band, seeds)
    pairs = zip(expected, _bounds(bounds, limits, measured, 1), strict=True)
    answers = [said if seen is None else _judged(name, bound, seen, "measured") for said, (name, bound, seen) in pairs]
    return _gate(answers, origin=measured.origin, band=band)


def _gate(answers: Sequence[Answered], *, origin: str, band: float, nearest: str = "", seeds: int = 1) -> Gate:
    if not answers:
        return Gate(name="budget", verdict="yes", reason="no bound is set")
    refused = [reason for verdict, reason in answers if verdict == "no"]
    unknown = [reason for verdict, reason in answers if verdict == "unknown"]
    verdict: Answer = "no" if refused else "unknown" if unknown else "yes"
    reasons = refused or unknown or [reason for _, reason in answers]
    reason = f"no plan is within the bounds, {nearest} comes nearest: " if refused and nearest else ""
    reason += "; ".join(reasons) + (f"; {seeds} seeds are included" if seeds > 1 else "")
    return Gate(name="budget", verdict=verdict, reason=reason, evidence={"origin": origin, "band": band})


def _require_within(bounds: PlanTable, limits: LimitsTable) -> None:
    for key, bound, limit in (
        ("plan.budget_gpu_hours", bounds.budget_gpu_hours, limits.gpu_hours_per_run),
        ("plan.budget_money", bounds.budget_money, limits.money_per_run),
        ("plan.deadline_seconds", bounds.deadline_seconds, limits.run_seconds),
    ):
        if bound is not None and limit is not None and bound > limit:
            raise ConfigError(f"{key}: wanted at most the site's limit of {limit:g}, found {bound:g}; lower it")


def _answers(bounds: PlanTable, limits: LimitsTable, forecast: Forecast, band: float, seeds: int) -> Iterator[Answered]:
    for name, bound, known in _bounds(bounds, limits, forecast, seeds):
        most = f"{name}: at most {_shown(name, bound)}"
        if known is None:
            yield "unknown", f"{most}, no forecast yet: no run of this plan was measured"
        elif known and forecast.is_first:  # as no run has corrected it yet, it neither refuses nor promises anything
            yield "unknown", f"{most}, the first forecast says {_shown(name, known)}"
        else:
            yield _judged(name, bound, known * (1 + band), "forecast")


def _bounds(
    bounds: PlanTable, limits: LimitsTable, forecast: Forecast, seeds: int
) -> Iterator[tuple[str, float, float | None]]:
    """What is bounded, the tightest bound, and what is forecast: of time one training, of what is paid all of them."""
    paid = forecast.paid(seeds)
    for name, bound, limit, known in (
        ("GPU-hours", bounds.budget_gpu_hours, limits.gpu_hours_per_run, paid.gpu_hours),
        ("money", bounds.budget_money, limits.money_per_run, paid.money),
        (_TIME, bounds.deadline_seconds, None, forecast.wall_seconds),
    ):
        tightest = min((each for each in (bound, limit) if each is not None), default=None)
        if tightest is not None:
            yield name, tightest, known


def _judged(name: str, bound: float, value: float, word: str) -> Answered:
    sign = "above" if value > bound else "within"
    sentence = f"{name}: {_shown(name, value)} {word}, {sign} {_shown(name, bound)}"
    return "no" if value > bound else "yes", sentence


def _shown(name: str, value: float) -> str:
    return format_step(value) if name == _TIME else format_number(value)
