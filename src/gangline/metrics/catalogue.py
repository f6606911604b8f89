"""Every series that gangline exports, declared once: exporters, rules, boards and tests read it from here.

Names are in base units behind `gangline_`; counters end in `_total`. Label values come from closed sets, but for run,
rank and metric, which `book` counts, and the words of `run_info`, the one place where text of users stands, cut.
"""

import re
from dataclasses import dataclass
from typing import Literal

from gangline.spec.record import LEDGER_CAUSES, STAGES

Kind = Literal["gauge", "counter", "histogram"]
Source = Literal["driver", "rank 0", "each rank", "all"]

PREFIX = "gangline_"
PHASES = ("data", "forward", "backward", "wait", "optimizer", "checkpoint", "other")
STATISTICS = ("minimum", "median", "maximum")
STAGE_STATES = ("waiting", "running", "done", "taken", "skipped", "failed", "cancelled")
RANK_STATES = ("wanted", "joined")
SAVE_PARTS = ("blocking", "whole")
FORECAST_PARTS = ("memory", "step", "wall", "money")
DROP_REASONS = ("cap", "not_finite", "undeclared")

CLOSED: dict[str, tuple[str, ...]] = {
    "stage": STAGES,
    "cause": LEDGER_CAUSES,
    "phase": PHASES,
    "statistic": STATISTICS,
    "state": STAGE_STATES + RANK_STATES,
    "part": SAVE_PARTS + FORECAST_PARTS,
    "reason": DROP_REASONS,
}
"""Labels whose values are known; the empty value stands for "not said" as it does in Prometheus."""
MAX_RANKS = 256
"""Gangs with more ranks have minimum, median and maximum instead of a series for each rank."""
COUNTED: dict[str, int] = {"run": 1, "rank": MAX_RANKS, "metric": 16, "currency": 1}
"""Labels with few values that are not known beforehand, and how many of them one run may have."""
CUT = ("project", "commit", "branch", "line", "plan", "target")
"""Text, only on `run_info`."""
MAX_TEXT = 80
MAX_SERIES_PER_RUN = 1000

_NAME = re.compile(r"gangline_[a-z]+(_[a-z]+)*")
_SAVE_BUCKETS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0)


@dataclass(frozen=True, slots=True)
class Series:
    name: str
    kind: Kind
    labels: tuple[str, ...]
    source: Source
    help: str
    buckets: tuple[float, ...] = ()
    """Upper bounds of a histogram, without infinity."""


def _series(source: Source, labels: str, *rows: tuple[str, str, str]) -> tuple[Series, ...]:
    """Series that share source and labels: (name without prefix, kind letter, help)."""
    kinds: dict[str, Kind] = {"g": "gauge", "c": "counter"}
    names = tuple(labels.split())
    return tuple(Series(PREFIX + name, kinds[kind], names, source, text) for name, kind, text in rows)


CATALOGUE: dict[str, Series] = {
    each.name: each
    for each in (
        *_series("driver", "run project commit branch line plan target", (
            "run_info", "g", "Always 1; commit, branch and plan of a run, to join by run.")),
        *_series("driver", "run stage state", ("run_stage", "g", "1 for the state that a stage is in.")),
        *_series("driver", "run stage", ("run_stage_seconds", "g", "How long a stage took.")),
        *_series("driver", "run", ("run_eta_seconds", "g", "Forecast of the time that training still needs.")),
        *_series("rank 0", "run",
            ("train_step", "g", "Last finished step."),
            ("train_steps", "g", "Steps that the plan asks for."),
            ("train_loss", "g", "Training loss of the last step, over all ranks."),
            ("train_gradient_norm", "g", "Global gradient norm before clipping."),
            ("train_learning_rate", "g", "Learning rate of the last step."),
            ("train_memory_peak_bytes", "g", "Peak memory of rank 0 since its start."),
            ("train_generation", "g", "Starts of the ranks so far, from 1."),
            ("train_samples_total", "c", "Samples trained, over all ranks."),
            ("train_tokens_total", "c", "Tokens trained, over all ranks."),
            ("train_nonfinite_steps_total", "c", "Steps whose loss or gradients were not finite.")),
        *_series("rank 0", "run phase statistic", (
            "train_step_phase_seconds", "g", "Time of a phase in a step, over the last 50 steps of rank 0.")),
        *_series("each rank", "run rank statistic",
            ("rank_step_seconds", "g", "Time of the last step of a rank."),
            ("rank_wait_ratio", "g", "Share of the last step that a rank waited for its peers."),
            ("rank_last_step", "g", "Last step that a rank finished.")),
        *_series("rank 0", "run",
            ("checkpoint_last_step", "g", "Step of the last durable checkpoint."),
            ("checkpoint_size_bytes", "g", "Size of the last durable checkpoint."),
            ("checkpoint_failures_total", "c", "Saves that failed.")),
        Series(PREFIX + "checkpoint_duration_seconds", "histogram", ("run", "part"), "rank 0",
               "Time of a save: what blocked training, and the whole.", _SAVE_BUCKETS),
        *_series("driver", "run state", ("gang_ranks", "g", "Ranks of the gang: wanted and joined.")),
        *_series("driver", "run", ("gang_restarts_total", "c", "Restarts of the gang.")),
        *_series("driver", "run cause", ("ledger_seconds_total", "c", "Held rank-seconds by cause.")),
        *_series("driver", "run part", ("plan_forecast_ratio", "g", "Measured over forecast.")),
        *_series("driver", "run currency", ("run_cost", "g", "Money the run cost, in its currency.")),
        *_series("driver", "run metric",
            ("eval_value", "g", "Value of a metric on held-out data."),
            ("band_center", "g", "Centre of the band that the metric is judged on."),
            ("band_half", "g", "Half width of the band that the metric is judged on.")),
        *_series("all", "reason", ("series_dropped_total", "c", "Samples that were not exported.")),
    )
}  # fmt: skip


def check_catalogue(catalogue: dict[str, Series] | None = None) -> tuple[str, ...]:
    """Sentences on series that break the rules of the catalogue; none: it is sound."""
    found = [problem for each in (catalogue or CATALOGUE).values() for problem in _problems(each)]
    return tuple(found)


def most_series_of_a_run(ranks: int) -> int:
    """Series that carry one run's id, with all label values in use."""
    return sum(_most(each, ranks) for each in CATALOGUE.values() if "run" in each.labels)


def _most(series: Series, ranks: int) -> int:
    if "rank" in series.labels:
        return ranks if ranks <= MAX_RANKS else len(STATISTICS)
    count = 1
    for label in series.labels:
        count *= len(_values(series, label)) if label in CLOSED else COUNTED.get(label, 1)
    lines = len(series.buckets) + 3 if series.kind == "histogram" else 1
    return count * lines


def _values(series: Series, label: str) -> tuple[str, ...]:
    """Values of a closed label that this series can take."""
    own = {
        ("gang_ranks", "state"): RANK_STATES, ("run_stage", "state"): STAGE_STATES,
        ("checkpoint_duration_seconds", "part"): SAVE_PARTS, ("plan_forecast_ratio", "part"): FORECAST_PARTS,
    }  # fmt: skip
    return own.get((series.name.removeprefix(PREFIX), label), CLOSED[label])


def _problems(series: Series) -> list[str]:
    found = []
    last = series.name.rpartition("_")[2]
    if not _NAME.fullmatch(series.name):
        found.append(f"{series.name}: wanted gangline_ and lower-case words, found something else")
    if (series.kind == "counter") != (last == "total"):
        found.append(f"{series.name}: counters end in _total and nothing else does")
    if series.kind == "histogram" and (last != "seconds" or list(series.buckets) != sorted(set(series.buckets))):
        found.append(f"{series.name}: a histogram ends in _seconds and has rising buckets")
    if unknown := [label for label in series.labels if label not in {*CLOSED, *COUNTED, *CUT}]:
        found.append(f"{series.name}: labels {unknown} have no known values")
    if series.name != PREFIX + "run_info" and set(series.labels) & set(CUT):
        found.append(f"{series.name}: text stands on gangline_run_info alone")
    if not series.help.endswith("."):
        found.append(f"{series.name}: wanted a sentence of help, found {series.help!r}")
    return found
