"""Series from the events of a rank, live or replayed, and from records. Pure: fills a series store."""

import threading
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from gangline.metrics.labels import DIRECTIONS, MAX_RANKS, REFUSED_REASONS, STAGE_STATES, gate_label
from gangline.metrics.record_values import Price, cost_of, created_at, gpu_seconds
from gangline.metrics.series_store import SeriesStore
from gangline.spec.forecast import Forecast
from gangline.spec.measurements import PHASES, Answer, Metric, RankRow
from gangline.spec.record import PlanInfo, Record

WINDOW_STEPS = 50


_COUNTED: dict[str, tuple[str, dict[str, str]]] = {
    "save_failed": ("checkpoint_failures_total", {}),
    "non_finite": ("train_nonfinite_steps_total", {}),
    "push_refused": ("ps_blocks_total", {"outcome": "refused"}),
}
"""Events of which no more than their number matters: series and labels."""


@dataclass
class RankSeries:
    """The series of one rank, from its events in `out/ranks/<rank>.jsonl`."""

    run: str
    rank: int
    book: SeriesStore
    by_rank: bool = True
    """False in a gang of more ranks than may have series of their own."""
    trains: bool = True
    """False in a gang that evaluates a model."""
    _steps: deque[Mapping[str, Any]] = field(default_factory=deque)
    """Observed and not yet in `book`."""
    _window: dict[str, deque[float]] = field(default_factory=dict)
    _slow: frozenset[Any] = frozenset()
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.book.before_read = self.flush

    @property
    def is_reporting(self) -> bool:
        """This rank reports the training as a whole."""
        return self.rank == 0 and self.trains

    def observe(self, event: Mapping[str, Any]) -> None:
        """Take in one event, which must not change afterwards; kinds without series are ignored."""
        if self.is_reporting and "generation" in event:
            self.book.set("train_generation", _number(event["generation"]), run=self.run)
        kind = str(event.get("event", ""))
        if kind == "step":
            self._steps.append(event)  # put off: the training must not wait for a scrape that may never come
            if len(self._steps) >= WINDOW_STEPS:
                self.flush()
        elif self.is_reporting:
            self._set_event(kind, event)

    def _set_event(self, kind: str, event: Mapping[str, Any]) -> None:
        if kind in _COUNTED:
            name, labels = _COUNTED[kind]
            self.book.add(name, 1.0, run=self.run, **labels)
        elif kind == "saved":
            self._saved(event)
        elif kind in ("straggler", "straggler_over"):
            self._slow = self._slow | {event.get("slow")} if kind == "straggler" else self._slow - {event.get("slow")}
            self.book.set("train_stragglers", len(self._slow), run=self.run)
        elif kind in ("round", "round_lost"):
            self._round(kind, event)
        elif kind == "members":
            for state, key in (("roster", "members"), ("accepted", "accepted")):
                self.book.set("federated_members", _number(event.get(key)), state=state, run=self.run)
        elif kind == "merged":
            self._merged(event)
        elif kind == "job_started":
            self.book.set("train_steps", _number(event.get("steps")), run=self.run)

    def flush(self) -> None:
        """Put the observed steps into `book`: the values of the last one, and sums and medians of all."""
        with self._lock:
            steps = [self._steps.popleft() for _ in range(len(self._steps))]
            if steps and self.by_rank:
                self._rank(steps[-1])
            if steps and self.is_reporting:
                self._train(steps)

    def _rank(self, step: Mapping[str, Any]) -> None:
        own = {"run": self.run, "rank": str(self.rank)}
        seconds, waited = _number(step.get("seconds")), _number((step.get("phases") or {}).get("wait"))
        self.book.set("rank_step_seconds", seconds, **own)
        self.book.set("rank_last_step", _number(step.get("step")), **own)
        if seconds and waited is not None:
            self.book.set("rank_wait_ratio", waited / seconds, **own)

    def _train(self, steps: Sequence[Mapping[str, Any]]) -> None:
        for name, key in _TRAIN_GAUGES.items():
            self.book.set(name, next(_numbers(reversed(steps), key), None), run=self.run)
        for name, key in _TRAIN_COUNTERS.items():
            for amount in [*_numbers(steps, key)] or [0.0]:
                self.book.add(name, amount, run=self.run)
        for phase in PHASES:
            window = self._window.setdefault(phase, deque(maxlen=WINDOW_STEPS))
            window.extend(_numbers([step.get("phases") or {} for step in steps], phase))
            if window:
                for statistic, seconds in (("median", median(window)), ("maximum", max(window))):
                    labels = {"run": self.run, "phase": phase, "statistic": statistic}
                    self.book.set("train_step_phase_seconds", seconds, **labels)

    def _round(self, kind: str, event: Mapping[str, Any]) -> None:
        """One attempt of a round of a federation."""
        own = {"run": self.run}
        for direction in DIRECTIONS:
            sent = _number(event.get(f"bytes_{direction}")) or 0.0
            self.book.add("federated_wire_bytes_total", sent, direction=direction, **own)
        refused = event.get("refused")
        for reason, count in (refused if isinstance(refused, dict) else {}).items():
            if reason in REFUSED_REASONS:
                self.book.add("federated_refused_total", _number(count) or 0.0, reason=reason, **own)
        self.book.set("federated_members", _number(event.get("members")), state="roster", **own)
        self.book.set("federated_members", _number(event.get("answered")), state="answered", **own)
        self.book.add("federated_lost_rounds_total", float(kind == "round_lost"), **own)
        if kind == "round":
            self.book.set("federated_round", _number(event.get("round")), **own)
            self.book.set("federated_round_seconds", _number(event.get("seconds")), **own)
            self.book.set("train_step", _number(event.get("step")), **own)
            self.book.set("train_loss", _number(event.get("loss")), **own)

    def _merged(self, event: Mapping[str, Any]) -> None:
        """A merge of the first shard of a parameter server."""
        run, ages = self.run, event.get("ages") or ()
        self.book.set("ps_version", _number(event.get("version")), run=run)
        self.book.set("ps_worker_silent_seconds", _number(event.get("silent_seconds")), run=run)
        if ages:
            self.book.set("ps_push_age", sum(ages) / len(ages), run=run)
        counts = {"merged": ages, "dropped": event.get("dropped") or (), "refused": event.get("refused") or ()}
        for outcome, blocks in counts.items():
            self.book.add("ps_blocks_total", len(blocks), run=run, outcome=outcome)
        for direction, key in (("up", "sent_bytes"), ("down", "received_bytes")):
            self.book.add("ps_wire_bytes_total", _number(event.get(key)) or 0.0, run=run, direction=direction)

    def _saved(self, event: Mapping[str, Any]) -> None:
        self.book.set("checkpoint_last_step", _number(event.get("step")), run=self.run)
        self.book.set("checkpoint_size_bytes", _number(event.get("size_bytes")), run=self.run)
        for part, key in (("blocking", "blocking_seconds"), ("whole", "seconds")):
            seconds = _number(event.get(key))
            if seconds is not None:
                self.book.observe("checkpoint_duration_seconds", seconds, run=self.run, part=part)


def replay(
    events: Iterable[Mapping[str, Any]], *, run: str, rank: int, every_seconds: float, world_size: int = 1
) -> Iterator[tuple[float, SeriesStore]]:
    """Time and values of the rank's series every `every_seconds` of its life, and at its last event.

    Args:
        events: Of `ranks/<rank>.jsonl`, in order; those without a time are ignored.
        run: Its id.
        rank: Whose events they are.
        every_seconds: Between two scrapes.
        world_size: Above 256 no rank has series of its own.
    """
    series = RankSeries(run, rank, SeriesStore(), by_rank=world_size <= MAX_RANKS)
    last: float | None = None
    due = 0.0
    for event in events:
        time = event.get("time")
        if not isinstance(time, int | float) or (last is not None and time < last):
            continue
        if last is None:
            due = time + every_seconds
        elif time > due:
            yield last, series.book
            due = max(due, time) + every_seconds
        last = time
        series.observe(event)
    if last is not None:
        yield last, series.book


_TRAIN_GAUGES = {
    "train_step": "step", "train_loss": "loss", "train_gradient_norm": "gradient_norm",
    "train_learning_rate": "learning_rate", "train_memory_peak_bytes": "peak_bytes",
    "train_flops_per_second": "flops_per_second",
}  # fmt: skip
_TRAIN_COUNTERS = {
    "train_samples_total": "samples", "train_tokens_total": "tokens", "train_wire_bytes_total": "wire_bytes",
}  # fmt: skip


def set_record_series(book: SeriesStore, record: Record, *, price: Price | None = None) -> None:
    """Set all series of a record: those of its driver, and the last values of those of the ranks."""
    for stage, info in record.stages.items():
        for state in STAGE_STATES:
            book.set("run_stage", float(info.state == state), run=record.run.id, stage=stage, state=state)
    _set_run(book, record, price)
    _set_ranks(book, record)


def set_end_series(book: SeriesStore, record: Record, *, price: Price | None = None) -> None:
    """Set the series of a run that ended: none for states it is not in, none for single ranks."""
    for stage, info in record.stages.items():
        if info.state not in ("waiting", "running"):  # the report may be drawn still
            book.set("run_stage", 1.0, run=record.run.id, stage=stage, state=info.state)
    _set_run(book, record, price)
    _set_curve(book, record)


def _set_run(book: SeriesStore, record: Record, price: Price | None) -> None:
    run = record.run.id
    branch, plan = record.commit.branch or "", record.plan.name if record.plan else ""
    book.set_only(
        "run_info", 1.0, run=run, project=record.run.project, commit=record.commit.sha, branch=branch,
        line=record.inputs.line[:12], plan=plan, target=record.gang.launcher if record.gang else "",
    )  # fmt: skip
    book.set("run_created_timestamp_seconds", created_at(record), run=run)
    if record.run.verdict:
        book.set("run_verdict", 1.0, run=run, verdict=record.run.verdict)
    for stage, info in record.stages.items():
        took = None if info.state == "running" else info.seconds
        book.set("run_stage_seconds", took, run=run, stage=stage)
    if record.gang:
        book.set("gang_restarts_total", record.gang.restarts, run=run)
    if record.ledger:
        for cause, seconds in record.ledger.seconds.items():
            book.set("ledger_seconds_total", seconds, run=run, cause=cause)
    for gate in sorted(record.gates, key=lambda gate: -_ANSWERS[gate.verdict]):  # the worst of a kind is set last
        book.set("run_gate", _ANSWERS[gate.verdict], run=run, gate=gate_label(gate.name))
    for name, metric in record.metrics.items():
        _set_metric(book, run, name, metric)
    if record.plan:
        _set_plan(book, run, record.plan)
    if price and gpu_seconds(record) and (cost := cost_of(record, price)) is not None:
        book.set("run_cost", cost, run=run, currency=price.currency)


_ANSWERS: dict[Answer, float] = {"yes": 1.0, "unknown": 0.0, "no": -1.0}


def _set_metric(book: SeriesStore, run: str, name: str, metric: Metric) -> None:
    book.set("eval_value", metric.value, run=run, metric=name)
    band = metric.base_band or metric.band
    if band:
        book.set("band_center", band.center, run=run, metric=name)
        book.set("band_half", band.half, run=run, metric=name)


def _set_plan(book: SeriesStore, run: str, plan: PlanInfo) -> None:
    book.set("gang_ranks", plan.world_size, run=run, state="wanted")
    book.set("train_steps", plan.steps, run=run)
    expected, measured = _forecasts(plan.forecast), _forecasts(plan.measured)
    if plan.device == "cpu":
        expected.pop("memory", None)  # measured is the whole process there, with Python; the forecast is of tensors
    if plan.forecast.is_first:  # not corrected by a run yet: only its parts are comparable
        expected = {part: each for part, each in expected.items() if part not in _CORRECTED}
    for part, value in expected.items():
        if value and part in measured:
            book.set("plan_forecast_ratio", measured[part] / value, run=run, part=part)


_CORRECTED = ("step", "wall", "money")


def _forecasts(forecast: Forecast) -> dict[str, float]:
    """Known values of a forecast, by part."""
    whole = {
        "memory": forecast.memory_bytes, "step": forecast.step_seconds, "wall": forecast.wall_seconds,
        "money": forecast.money, "wire": forecast.wire_bytes,
    }  # fmt: skip
    known = {part: float(value) for part, value in whole.items() if value is not None}
    return known | {term.part: term.seconds for term in forecast.terms}


def _set_ranks(book: SeriesStore, record: Record) -> None:
    run = record.run.id
    rows = {str(row.rank): (row.step_seconds, _wait_ratio(row)) for row in record.ranks}
    if record.plan is None or record.plan.world_size <= MAX_RANKS:
        for rank, (seconds, waited) in rows.items():
            book.set("rank_step_seconds", seconds, run=run, rank=rank)
            book.set("rank_wait_ratio", waited, run=run, rank=rank)
    elif rows:
        for name, place in (("rank_step_seconds", 0), ("rank_wait_ratio", 1)):
            for statistic, value in _statistics(row[place] for row in rows.values()).items():
                book.set(name, value, run=run, statistic=statistic)
    _set_curve(book, record)


def _set_curve(book: SeriesStore, record: Record) -> None:
    if record.curve.points:
        last = record.curve.points[-1]
        book.set("train_step", last.step, run=record.run.id)
        book.set("train_loss", last.value, run=record.run.id)


def _wait_ratio(row: RankRow) -> float | None:
    whole = sum(row.phases.values())
    return row.phases.get("wait", 0.0) / whole if whole else None


def _statistics(values: Iterable[float | None]) -> dict[str, float]:
    known = [value for value in values if value is not None]
    return {"minimum": min(known), "median": median(known), "maximum": max(known)} if known else {}


def _numbers(tables: Iterable[Mapping[str, Any]], key: str) -> Iterator[float]:
    """Those that tables have under `key`."""
    return (number for table in tables if (number := _number(table.get(key))) is not None)


def _number(value: Any) -> float | None:
    """`value` where it is a number; text and None say nothing."""
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
