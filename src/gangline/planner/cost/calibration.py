"""Calibration of forecasts with the errors of earlier runs. Pure.

Corrections belong to one model on one device in one precision: the caller passes runs of the same model. A ratio is the
measured value over the forecast *before* any correction, so that corrections do not feed on themselves.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil, exp, inf, log
from statistics import median

from gangline.spec.forecast import Term
from gangline.spec.mesh import Mesh
from gangline.spec.profile import MeasuredRun

MOST_RECORDS = 50

BAND_FLOOR, BAND_SHARE = 0.02, 0.90

MARGIN_FLOOR, MARGIN_SHARE = 0.02, 0.99

FEWEST_FOR_QUANTILE = 9
"""Fewer errors than these have no 90th percentile of their own: the bounds without records stay."""

Key = tuple[str, str]
"""Device by name, precision."""


@dataclass(frozen=True, slots=True)
class Factor:
    """What a forecast is multiplied with."""

    value: float = 1.0
    count: int = 0
    """Runs that it was learned from."""

    def origin(self, otherwise: str) -> str:
        """Where what it corrects comes from; `otherwise` where no run corrects it."""
        return f"calibrated n={self.count}" if self.count else otherwise


@dataclass(frozen=True, kw_only=True, slots=True)
class Calibration:
    """Corrections of one key."""

    factors: Mapping[str, Factor] = field(default_factory=dict)
    """Corrections by part of the step, of all runs."""
    kinds: Mapping[tuple[str, str], float] = field(default_factory=dict)
    """Share by which runs of a part and kind of sharing ask for more than `factors`; without any, no more."""
    step: Factor = Factor()
    """Correction of the whole step; corrects the parts where a clock could not tell them apart."""
    seconds: Mapping[str, float] = field(default_factory=dict)
    """Seconds of parts that have no formula: `data` for one sample of a rank, others for one step."""
    band: float | None = None
    """Share by which 9 of 10 forecasts of the step were off at most; None: too few were made."""
    memory_margin: float | None = None
    """Share by which 99 of 100 peaks were above their forecast at most; None: too few, or no GPU."""

    def factor(self, part: str, kind: str = "") -> Factor:
        """Correction of `part` where parameters are shared in the way that `kind_of` names."""
        all_runs = self.factors.get(part, self.step)
        return Factor(all_runs.value * self.kinds.get((part, kind), 1.0), all_runs.count)

    def corrected(self, part: str, kind: str, raw: float, origin: str) -> Term:
        """Seconds of a part that formulas say, as earlier runs correct them."""
        factor = self.factor(part, kind)
        return Term(part=part, seconds=raw * factor.value, raw_seconds=raw, origin=factor.origin(origin))

    def learned(self, part: str, share: float = 1.0) -> Term:
        """Seconds of a part that has no formula: as earlier runs had it, else nothing, and that is said."""
        seconds = self.seconds.get(part)
        if seconds is None:
            return Term(part=part, seconds=0.0, origin="default")
        return Term(part=part, seconds=seconds * share, origin="measured by earlier runs")

    def origin(self, otherwise: str) -> str:
        """Where a whole forecast comes from; `otherwise` where no run corrects any part."""
        count = max(factor.count for factor in (self.step, *self.factors.values()))
        return Factor(count=count).origin(otherwise)


def calibrate(
    history: Sequence[MeasuredRun], key: Key, *, band: float = 0.05, memory_margin: float = 0.10
) -> Calibration:
    """What the first 50 runs of `key` in `history` teach, newest first; `band` and `memory_margin` are what holds while
    there are few records."""
    alike = [run for run in history if key_of(run) == key][:MOST_RECORDS]
    ratios = _ratios(alike)
    step = factor_of(_step_ratios(alike))
    return Calibration(
        factors={part: factor_of([ratio for _, ratio in each]) for part, each in ratios.items()},
        kinds=_kinds(ratios),
        step=step,
        seconds=_seconds(alike),
        band=_widest(band_of(_forecast_errors(alike), default=band), step, band),
        memory_margin=margin_of(_peak_errors(alike), default=memory_margin),
    )


def key_of(run: MeasuredRun) -> Key:
    """The device and the precision that `run` teaches about."""
    return (run.device_name or run.forecast.device_name or run.device, run.precision)


def factor_of(ratios: Sequence[float]) -> Factor:
    """The median ratio, held back towards 1 while there are few: of a constant bias b, b ** (1 / (n + 1)) stays."""
    count = len(ratios)
    if not count:
        return Factor()
    return Factor(exp(count / (count + 1) * median(log(ratio) for ratio in ratios)), count)


def band_of(ratios: Sequence[float], *, default: float = 0.05) -> float | None:
    """Share that covers 9 of 10 errors, at least 2 %; never below `default` while there are few, None without any."""
    errors = [abs(log(ratio)) for ratio in ratios]
    return _bound(errors, BAND_SHARE, floor=BAND_FLOOR, default=default)


def _widest(band: float | None, step: Factor, default: float) -> float | None:
    """What a constant bias would still be off by, after as few runs as there were, is part of the band."""
    left = exp(abs(log(step.value)) / step.count) - 1 if step.count else 0.0
    return None if band is None and left <= default else max(band or 0.0, left)


def margin_of(ratios: Sequence[float], *, default: float = 0.10) -> float | None:
    """Share by which 99 of 100 peaks are above their forecast at most; floor and `default` as in `band_of`."""
    return _bound([log(ratio) for ratio in ratios], MARGIN_SHARE, floor=MARGIN_FLOOR, default=default)


def _bound(errors: Sequence[float], share: float, *, floor: float, default: float) -> float | None:
    if not errors:
        return None
    found = exp(percentile(errors, share)) - 1
    return max(found, floor if len(errors) >= FEWEST_FOR_QUANTILE else default)


def percentile(values: Sequence[float], share: float) -> float:
    """The value that the next one stays below with this probability, whatever their distribution; at most the largest.

    Source:
        Vovk, Gammerman and Shafer, "Algorithmic Learning in a Random World" (2005), ch. 2: of n values that come in
        any order alike, the next lies below the k-th smallest with probability k / (n + 1).
    """
    place = ceil(share * (len(values) + 1))
    return sorted(values)[min(place, len(values)) - 1]


def kind_of(mesh: Mesh) -> str:
    """Shards are gathered and scattered while a rank waits, copies are averaged during its work: their errors
    differ."""
    return "shards" if mesh.dp_shard * mesh.cp > 1 else "copies"


def _kinds(ratios: Mapping[str, Sequence[tuple[str, float]]]) -> dict[tuple[str, str], float]:
    """What the median of a kind adds to that of all, held back likewise; of one kind alone it is nothing."""
    found: dict[tuple[str, str], float] = {}
    for part, each in ratios.items():
        middle = median(log(ratio) for _, ratio in each)
        for kind in {kind for kind, _ in each}:
            own = [log(ratio) for other, ratio in each if other == kind]
            found[part, kind] = exp(len(own) / (len(own) + 1) * (median(own) - middle))
    return found


def _ratios(runs: Iterable[MeasuredRun]) -> dict[str, list[tuple[str, float]]]:
    """Kinds of runs and their ratios, by part."""
    ratios: dict[str, list[tuple[str, float]]] = {}
    for run in runs:
        for term in run.forecast.terms:
            seconds = run.parts.get(term.part)
            if term.raw_seconds and seconds:
                ratios.setdefault(term.part, []).append((kind_of(run.mesh), seconds / term.raw_seconds))
    return ratios


def _step_ratios(runs: Iterable[MeasuredRun]) -> list[float]:
    """Ratios of runs whose forecast was made of parts, all of them known."""
    sums = ((run.step_seconds, sum(term.raw_seconds or 0.0 for term in run.forecast.terms if term.part != "checkpoint"))
            for run in runs if not run.forecast.missing)  # fmt: skip
    return [measured / raw for measured, raw in sums if raw > 0 and measured > 0]


def _seconds(runs: Sequence[MeasuredRun]) -> dict[str, float]:
    """Medians of what no formula tells."""
    found: dict[str, list[float]] = {"data": [], "other": []}
    for run in runs:
        shares = {"data": run.global_batch / run.mesh.data_parallel, "other": 1.0}
        for part, share in shares.items():
            if part in run.parts:
                found[part].append(run.parts[part] / share)
    return {part: median(each) for part, each in found.items() if each}


def _forecast_errors(runs: Iterable[MeasuredRun]) -> list[float]:
    """Steps over their forecasts before the run, corrections and all; first forecasts had none."""
    return [
        run.step_seconds / run.forecast.step_seconds
        for run in runs
        if run.forecast.step_seconds and 0 < run.step_seconds < inf and not run.forecast.is_first
    ]


def _peak_errors(runs: Iterable[MeasuredRun]) -> list[float]:
    """Peaks over their forecasts; on CPUs the process is measured and tensors are forecast, not comparable."""
    return [
        run.peak_memory_bytes / run.forecast.memory_bytes
        for run in runs
        if run.device == "cuda" and run.peak_memory_bytes and run.forecast.memory_bytes
    ]
