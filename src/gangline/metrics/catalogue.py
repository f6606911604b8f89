"""Catalogue of every series that gangline exports, declared once, and the checks that each declaration passes."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from gangline.metrics.labels import CLOSED, COUNTED, CUT, values_of

Kind = Literal["gauge", "counter", "histogram"]
Source = Literal["driver", "rank 0", "each rank", "serve", "infer", "all"]

PREFIX = "gangline_"
_SAVE_BUCKETS = (0.01, 0.05, 0.2, 1.0, 5.0, 20.0, 100.0, 300.0)
_ACK_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 10.0)
_CALL_BUCKETS = (0.005, 0.025, 0.1, 0.5, 1.0, 5.0, 30.0)
_STAGE_BUCKETS = (1.0, 10.0, 60.0, 300.0, 1800.0, 7200.0, 43_200.0)
_RESULT_BUCKETS = (30.0, 120.0, 600.0, 1800.0, 3600.0, 14_400.0, 86_400.0, 259_200.0)


@dataclass(frozen=True, slots=True)
class Series:
    """One series, as it is declared."""

    name: str
    kind: Kind
    labels: tuple[str, ...]
    source: Source
    help: str
    buckets: tuple[float, ...] = ()
    """Upper bounds of a histogram, without infinity."""

    @property
    def lines(self) -> int:
        """Samples of one set of label values."""
        return len(self.buckets) + 3 if self.kind == "histogram" else 1

    @property
    def sample_names(self) -> tuple[str, ...]:
        """Names as in a time-series database."""
        if self.kind != "histogram":
            return (self.name,)
        return tuple(self.name + suffix for suffix in ("_bucket", "_sum", "_count"))


def _series(source: Source, labels: str, *rows: tuple[str, str, str]) -> tuple[Series, ...]:
    """Series that share source and labels: (name without prefix, kind letter, help)."""
    kinds: dict[str, Kind] = {"g": "gauge", "c": "counter"}
    names = tuple(labels.split())
    return tuple(Series(PREFIX + name, kinds[kind], names, source, text) for name, kind, text in rows)


def _histogram(source: Source, labels: str, name: str, text: str, buckets: Iterable[float]) -> Series:
    return Series(PREFIX + name, "histogram", tuple(labels.split()), source, text, tuple(buckets))


CATALOGUE: dict[str, Series] = {
    series.name: series
    for series in (
        *_series("driver", "run project commit branch line plan target", (
            "run_info", "g", "Always 1; commit, branch and plan of a run, to join by run.")),
        *_series("driver", "run stage state", ("run_stage", "g", "1 for the state that a stage is in.")),
        *_series("driver", "run verdict", ("run_verdict", "g", "1 for the verdict of a run that ended.")),
        *_series("driver", "run stage", ("run_stage_seconds", "g", "How long a stage took.")),
        *_series("driver", "run",
            ("run_created_timestamp_seconds", "g", "When the run was made, since the epoch: its mark on boards."),
            ("run_eta_seconds", "g", "Forecast of the time that training still needs."),
            ("run_waiting", "g", "1 while the gang waits for devices."),
            ("train_mfu_ratio", "g", "Model arithmetic of the last step over what its GPUs can do.")),
        *_series("rank 0", "run",
            ("train_step", "g", "Last finished step."),
            ("train_steps", "g", "Steps of the plan."),
            ("train_loss", "g", "Training loss of the last step, over all ranks."),
            ("train_gradient_norm", "g", "Global gradient norm before clipping."),
            ("train_learning_rate", "g", "Learning rate of the last step."),
            ("train_memory_peak_bytes", "g", "Peak memory of rank 0 since its start."),
            ("train_flops_per_second", "g", "Model arithmetic of the last step in a second, over all ranks."),
            ("train_stragglers", "g", "Ranks that hold the gang up now."),
            ("train_generation", "g", "Starts of the ranks so far, from 1."),
            ("train_samples_total", "c", "Samples trained, over all ranks."),
            ("train_tokens_total", "c", "Tokens trained, over all ranks."),
            ("train_wire_bytes_total", "c", "Bytes that rank 0 sent to other ranks over TCP."),
            ("train_nonfinite_steps_total", "c", "Steps whose loss or gradients were not finite."),
            ("federated_round", "g", "Last merged round."),
            ("federated_round_seconds", "g", "Time of that round, lost attempts included."),
            ("federated_lost_rounds_total", "c", "Attempts of rounds that merged nothing.")),
        *_series("rank 0", "run state", (
            "federated_members", "g", "Members on the roster, those that accepted, and those of the last round.")),
        *_series("rank 0", "run reason", (
            "federated_refused_total", "c", "Answers of members that did not count.")),
        *_series("rank 0", "run direction", (
            "federated_wire_bytes_total", "c", "Bytes of answers (up) and of what members were asked with (down).")),
        *_series("rank 0", "run",
            ("ps_version", "g", "Merges of the first shard of a parameter server."),
            ("ps_push_age", "g", "Mean age of the pushes of the last merge, in merges."),
            ("ps_worker_silent_seconds", "g",
             "Time at the last merge since the last merged push of the worker that was silent longest.")),
        *_series("rank 0", "run outcome", ("ps_blocks_total", "c", "Blocks by what became of them.")),
        *_series("rank 0", "run direction", (
            "ps_wire_bytes_total", "c", "Bytes that workers exchanged with the store.")),
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
        _histogram("rank 0", "run part", "checkpoint_duration_seconds",
                   "Time of a save: what blocked training, and the whole.", _SAVE_BUCKETS),
        *_series("driver", "run state", ("gang_ranks", "g", "Ranks of the gang: wanted and joined.")),
        *_series("driver", "run", ("gang_restarts_total", "c", "Restarts of the gang.")),
        *_series("driver", "run tracker", ("tracker_failures_total", "c", "Calls that a tracker did not take.")),
        *_series("driver", "run cause", ("ledger_seconds_total", "c", "Held rank-seconds by cause.")),
        *_series("driver", "run part", ("plan_forecast_ratio", "g", "Measured over forecast.")),
        *_series("driver", "run gate", (
            "run_gate", "g", "Answer of a gate: 1 yes, 0 unknown, -1 no; the worst of its kind.")),
        *_series("driver", "run currency", ("run_cost", "g", "Money the run cost, in its currency.")),
        *_series("driver", "run metric",
            ("eval_value", "g", "Value of a metric on held-out data."),
            ("band_center", "g", "Centre of the band that the metric is judged on."),
            ("band_half", "g", "Half width of the band that the metric is judged on.")),
        *_series("serve", "project verdict", ("runs_total", "c", "Runs that ended.")),
        *_series("serve", "project", ("runs_active", "g", "Runs that have not ended.")),
        _histogram("serve", "project", "result_duration_seconds",
                   "Time from the birth of a run to its end.", _RESULT_BUCKETS),
        _histogram("serve", "project stage", "stage_duration_seconds",
                   "Time of a stage that was run, not taken over.", _STAGE_BUCKETS),
        *_series("serve", "project stage", (
            "stages_taken_total", "c", "Stages whose result was taken from another run.")),
        *_series("serve", "project stage exit", ("stage_failures_total", "c", "Stages that failed.")),
        *_series("serve", "project gate verdict", ("gate_verdicts_total", "c", "Answers of gates.")),
        *_series("serve", "project", ("gpu_seconds_total", "c", "GPU time that ended runs held.")),
        *_series("serve", "project currency", ("cost_total", "c", "Money that ended runs cost, in its currency.")),
        *_series("serve", "forge event outcome", ("webhook_requests_total", "c", "Deliveries that were answered.")),
        _histogram("serve", "forge", "webhook_ack_duration_seconds",
                   "Time until a delivery was answered.", _ACK_BUCKETS),
        *_series("serve", "forge outcome", ("forge_requests_total", "c", "Calls to a forge.")),
        *_series("serve", "state", ("queue_items", "g", "Orders by state.")),
        *_series("serve", "",
            ("queue_oldest_seconds", "g", "Age of the oldest order that may start and has not."),
            ("leases_overdue", "g", "Open runs whose driver has not renewed its lease."),
            ("records_refused", "g", "Records that cannot be read: damaged, too large, or of another run."),
            ("store_conflicts_total", "c", "Conditional writes that another writer won."),
            ("store_conditional_writes", "g", "1 where the store keeps two writers apart, else 0.")),
        *_series("serve", "operation outcome", ("store_requests_total", "c", "Calls to the store.")),
        _histogram("serve", "operation", "store_request_duration_seconds",
                   "Time of a call to the store.", _CALL_BUCKETS),
        *_series("infer", "model",
            ("infer_queue", "g", "Requests that wait for a forward pass."),
            ("infer_refused_total", "c", "Requests that were refused with 429, the queue being full."),
            ("infer_answered_total", "c", "Requests that were answered."),
            ("infer_failed_total", "c", "Requests that the model failed at."),
            ("infer_batch_samples", "g", "Samples of the last forward pass."),
            ("infer_version", "g", "Version of the model that answers.")),
        *_series("all", "reason", ("series_dropped_total", "c", "Samples that were not exported.")),
    )
}  # fmt: skip


_NAME = re.compile(r"gangline_[a-z]+(_[a-z]+)*")


def check_catalogue(catalogue: Mapping[str, Series] = CATALOGUE) -> tuple[str, ...]:
    """Sentences on series that break the rules of the catalogue; none: it is sound."""
    return tuple(problem for series in catalogue.values() for problem in _problems(series))


def _problems(series: Series) -> list[str]:
    return [*_problems_of_name(series), *_problems_of_labels(series)]


def _problems_of_name(series: Series) -> list[str]:
    found = []
    last = series.name.rpartition("_")[2]
    if not _NAME.fullmatch(series.name):
        found.append(f"{series.name}: wanted gangline_ and lower-case words, found something else")
    if (series.kind == "counter") != (last == "total"):
        found.append(f"{series.name}: counters end in _total and nothing else does")
    if series.kind == "histogram" and (last != "seconds" or list(series.buckets) != sorted(set(series.buckets))):
        found.append(f"{series.name}: a histogram ends in _seconds and has rising buckets")
    if not series.help.endswith("."):
        found.append(f"{series.name}: wanted a sentence of help, found {series.help!r}")
    return found


def _problems_of_labels(series: Series) -> list[str]:
    found = []
    short = series.name.removeprefix(PREFIX)
    if unknown := [label for label in series.labels if label not in {*CLOSED, *COUNTED, *CUT}]:
        found.append(f"{series.name}: labels {unknown} have no known values")
    if empty := [label for label in series.labels if values_of(short, label) == ()]:
        found.append(f"{series.name}: the values of {empty} are not declared for this series")
    if series.name != PREFIX + "run_info" and set(series.labels) & set(CUT):
        found.append(f"{series.name}: only gangline_run_info may have text labels")
    return found
