"""Runs of trials: which run a setting has, its driver as a child process, how far it is, how it ended.

A driver is `gangline run --json --set ...` in a session of its own. It outlives the search: the next call finds its run
by id, reads on where its lines are on this machine, and starts another driver where none is alive.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from math import isfinite
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

from gangline.errors import CapacityError, StorageError, TrainingError, error_for
from gangline.line.record import states
from gangline.line.record.store import RecordStore
from gangline.line.request.run_request import resolve_request
from gangline.line.results.loss_curve import by_step, each_line, losses_of
from gangline.line.run import lease
from gangline.line.run.driver import RunWorkspace
from gangline.line.run.driver_process import PROGRAM, DriverProcess
from gangline.metrics.record_values import cost_of, price_at
from gangline.search.searches import LOSS, trial_record, values_of
from gangline.search.space import overrides
from gangline.spec.gang.status import read_event
from gangline.spec.output_limits import MOST_METRIC_BYTES
from gangline.spec.record import Record
from gangline.spec.run_flags import SEARCH, not_finite
from gangline.spec.search import Scalar, SearchRequest
from gangline.storage import site_paths
from gangline.storage.objects.growing_file import read_growing_file

OWN_FAULTS = frozenset({10, 30, 31, 32, 35})
"""Exit codes of a run that its settings or its program are to blame for."""
AGAIN_SECONDS = (2.0, 10.0, 60.0)
"""Pause before the next start of a driver that left its run open."""
MOST_STARTS = 8
"""Drivers of one run that end without a record."""
LOOK_SECONDS = 0.3
STORED_SECONDS = 5.0
"""Time between two looks at what a gang of another machine has written."""
_WINDOW, _MOST_IN_WINDOW = 8, 64
"""A loss at a step is the mean of that share of the steps before it, and of no more of them than that."""
_MOST_VALUES = 16_384
"""Values of one run that are held; of more, those that no rung reads are dropped."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TrialRun:
    """The run that a setting has."""

    id: str
    again: bool = False
    """An earlier attempt was cancelled: this is another one."""
    existed: bool = False
    """Somebody else began it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RunStatus:
    """How far a run is."""

    state: Literal["absent", "waiting", "running", "ended", "failed", "cancelled"]
    """`absent`: no one has begun it; `waiting`: its gang has no devices yet."""
    is_driven: bool = True
    step: int = 0
    series: Mapping[int, float] = field(default_factory=dict)
    """Metric of rungs by step, as far as it was reported."""
    values: tuple[float, ...] | None = None
    """Metrics of the search, of an ended run."""
    hours: float = 0.0
    money: float | None = None
    reason: str = ""
    is_own_fault: bool = False

    def at(self, rung: int, metric: str) -> float | None:
        """Value at a rung; of a loss the mean of the steps shortly before, else the first one from there on."""
        if self.step < rung:
            return None
        if metric == LOSS:
            window = [value for step, value in self.series.items() if step in _window(rung)]
            return fmean(window) if window else None
        return next((value for step, value in sorted(self.series.items()) if step >= rung), None)


@dataclass
class _Lines:
    """What a driver has reported so far."""

    offset: int = 0
    series: dict[int, float] = field(default_factory=dict)
    step: int = 0
    joined: bool = False


class RepositoryTrials:
    """Runs of one commit of a repository, by setting, each with a driver of its own: what a search drives."""

    def __init__(
        self, workspace: RunWorkspace, request: SearchRequest, *, site_file: Path | None, target: str | None = None
    ) -> None:
        self._workspace, self._request = workspace, request
        self._folder = site_paths.home(workspace.repo) / "searches" / request.id
        self._options = [
            *(["--site", str(site_file.resolve())] if site_file else []), *(["--target", target] if target else []),
        ]  # fmt: skip
        self._children: dict[str, DriverProcess] = {}
        self._lines: dict[str, _Lines] = {}
        self._not_before: dict[str, float] = {}
        self.on_wait: Callable[[str], None] = lambda _: None
        """Called with the run that `train` waits for; what it raises ends the waiting."""

    def identify(self, settings: Mapping[str, Scalar]) -> TrialRun:
        """The run of a setting, known before it starts."""
        return self._identify((*self._request.overrides, *overrides(settings)))

    def start(self, run: str, settings: Mapping[str, Scalar], *, again: bool) -> None:
        """Drive it, unless somebody does; returns at once."""
        self._start(run, (*self._request.overrides, *overrides(settings)), again=again)

    def look(self, run: str) -> RunStatus:
        """How far it is."""
        record = self._record(run)
        if record is None:
            return self._unborn(run)
        if record.run.state == "ended":
            return self._ended(run, record)
        lines = self._read_lines(run)
        held = self._is_alive(run) or lease.is_held(
            lease.read_lease(self._workspace.store, record.prefix), now=time.time()
        )
        waits = record.gang.waiting if record.gang is not None else None
        has_gang = lines.joined or bool(record.gang and record.gang.admitted)
        child = self._child(run)
        reason = waits.who if waits else "" if held or child is None else child.last_message()
        return RunStatus(
            state="running" if has_gang else "waiting", is_driven=held, step=lines.step, series=lines.series,
            reason=reason,
        )  # fmt: skip

    def cancel(self, run: str, reason: str) -> None:
        """Ask it to stop; returns at once, and repeating it is harmless."""
        record = self._record(run)
        if record is None or record.run.state == "ended" or record.run.cancel_requested:
            return
        RecordStore.of(self._workspace.store, record).change(lambda each: states.request_cancel(each, reason))

    def leave(self) -> None:
        """Let what runs go on without this process."""
        for child in self._children.values():
            child.detach()

    def train(self, settings: Sequence[str]) -> Record:
        """Train the commit with these `--set` to the end, or take the run that has ended.

        Raises:
            GanglineError: It has no end: its settings are wrong, no capacity, store unavailable, stopped.
        """
        wanted = self._identify(settings)
        while True:
            status = self.look(wanted.id)
            if status.state in ("ended", "failed", "cancelled"):
                record = self._record(wanted.id)
                if record is None or status.state != "ended":
                    raise TrainingError(f"{wanted.id}: {status.reason}")
                self._children.pop(wanted.id, None)
                return record
            if not status.is_driven:
                self._start(wanted.id, settings, again=wanted.again)
            self.on_wait(wanted.id)
            time.sleep(LOOK_SECONDS)

    def _identify(self, settings: Sequence[str]) -> TrialRun:
        """The newest attempt, or the one after it where that was cancelled."""
        commit = self._request.commit
        request = resolve_request(self._workspace.repo, commit=commit, overrides=settings, strategy=None)
        attempt, newest = 1, None
        while (record := self._record(request.run_id(attempt))) is not None:
            newest, attempt = record, attempt + 1
        if newest is None:
            return TrialRun(id=request.run_id(1))
        if newest.run.verdict in ("cancelled", "superseded"):
            return TrialRun(id=request.run_id(attempt), again=True)
        return TrialRun(id=newest.run.id, existed=True)

    def _record(self, run: str) -> Record | None:
        return trial_record(self._workspace.store, self._request, run)

    def _child(self, run: str) -> DriverProcess | None:
        """The last driver of a run on this machine, by whichever search."""
        if run not in self._children and (child := DriverProcess.newest(self._folder, run)) is not None:
            self._children[run] = child
        return self._children.get(run)

    def _is_alive(self, run: str) -> bool:
        child = self._child(run)
        return child is not None and child.is_alive()

    def _start(self, run: str, settings: Sequence[str], *, again: bool) -> None:
        """Start a driver, a while after the last one."""
        if self._is_alive(run) or time.monotonic() < self._not_before.get(run, 0.0):
            return
        wants_again = again and self._record(run) is None
        command = [
            *PROGRAM, str(self._workspace.repo), "--commit", self._request.commit, *self._options,
            *(part for setting in settings for part in ("--set", setting)), *(["--again"] if wants_again else []),
        ]  # fmt: skip
        child = DriverProcess.start(
            self._folder, run, command, environ={**self._workspace.environ, SEARCH: self._request.id}
        )
        self._children[run], self._lines[run] = child, _Lines()
        pause = AGAIN_SECONDS[min(child.number, len(AGAIN_SECONDS)) - 1]
        self._not_before[run] = time.monotonic() + pause

    def _unborn(self, run: str) -> RunStatus:
        """Status of a run without a record: its driver is about to make it, or ended without one."""
        child = self._child(run)
        if child is None:
            return RunStatus(state="absent", is_driven=False)
        if child.is_alive():
            return RunStatus(state="waiting")
        code, message = child.poll(), child.last_message()
        is_over = code is not None and error_for(code) not in (CapacityError, StorageError) and code > 0
        if is_over or child.number >= MOST_STARTS:
            return RunStatus(state="failed", reason=message, is_own_fault=code in OWN_FAULTS)
        return RunStatus(state="waiting", is_driven=False, reason=message)

    def _ended(self, run: str, record: Record) -> RunStatus:
        lines, request = self._read_lines(run), self._request
        self._lines.pop(run, None)
        is_recorded = request.measured_by == record.curve.metric  # of a run that was driven elsewhere
        series = lines.series or ({point.step: point.value for point in record.curve.points} if is_recorded else {})
        step = max([lines.step, *(point.step for point in record.curve.points)])
        ledger, price = record.ledger, price_at(self._workspace.site)
        hours = ledger.allocated_seconds / 3600 if ledger else 0.0
        status = RunStatus(
            state="ended", step=step, series=series, hours=hours, reason=record.run.reason,
            money=cost_of(record, price) if price else None,
        )  # fmt: skip
        return _judged(status, record, request)

    def _read_lines(self, run: str) -> _Lines:
        """Read on in the lines of the newest driver; those of another driver are read from the first one."""
        lines, child = self._lines.setdefault(run, _Lines()), self._child(run)
        if child is None:
            self._read_stored(run, lines)
            return lines
        with suppress(OSError), (child.folder / "out").open("rb") as out:
            out.seek(lines.offset)
            for line in out:
                if not line.endswith(b"\n"):
                    break
                lines.offset += len(line)
                _add(lines, line, self._request.measured_by)
                if len(lines.series) > _MOST_VALUES:
                    lines.series = needed_values(lines.series, self._request)
        return lines

    def _read_stored(self, run: str, lines: _Lines) -> None:
        """What the gang has written into the store, where another machine drives it."""
        if time.monotonic() < self._not_before.get(run, 0.0) or (record := self._record(run)) is None:
            return
        self._not_before[run] = time.monotonic() + STORED_SECONDS
        data = read_growing_file(
            self._workspace.store, f"{record.gang_prefix}/metrics.jsonl", most_bytes=MOST_METRIC_BYTES
        )
        rows = by_step(each_line(data or b""), names={LOSS})
        lines.step = max(rows, default=0)
        if self._request.measured_by == LOSS:
            lines.series = needed_values(losses_of(rows), self._request)


def _judged(status: RunStatus, record: Record, request: SearchRequest) -> RunStatus:
    """The status of an ended run with its values, or why it has none."""
    if record.run.verdict in ("cancelled", "superseded"):
        return replace(status, state="cancelled")
    if record.run.verdict == "failed":
        is_own = record.run.exit_code in OWN_FAULTS
        return replace(status, state="failed", is_own_fault=is_own, reason=record.run.reason)
    broken = [name for name in request.metrics if name in not_finite(record)]
    values = values_of(record, request.metrics)
    if broken or (values is not None and not all(map(isfinite, values))):
        return replace(status, state="failed", is_own_fault=True, reason=f"{', '.join(broken)} is not finite")
    if values is None:
        has = ", ".join(sorted(record.metrics)) or "nothing"
        reason = f"wanted {', '.join(request.metrics)}, its run reports {has}"
        return replace(status, state="failed", is_own_fault=True, reason=reason)
    return replace(status, values=values)


def _window(rung: int) -> range:
    return range(rung + 1 - max(1, min(rung // _WINDOW, _MOST_IN_WINDOW)), rung + 1)


def needed_values(series: Mapping[int, float], request: SearchRequest) -> dict[int, float]:
    """What the rungs read of a course: a program may report steps without end."""
    if request.measured_by == LOSS:
        windows = [_window(rung) for rung in request.rungs]
        return {step: value for step, value in series.items() if any(step in window for window in windows)}
    first = (min((step for step in series if step >= rung), default=None) for rung in request.rungs)
    return {step: series[step] for step in first if step is not None}


def _add(lines: _Lines, line: bytes, metric: str) -> None:
    """Take steps and metrics of the training's first rank from one line of a driver."""
    message = read_event(line) or {}
    data: Any = message.get("data")
    if message.get("event") != "progress" or message.get("stage") != "train" or not isinstance(data, dict):
        return
    step = data.get("step")
    if data.get("rank") != 0 or type(step) is not int:
        return
    if data.get("event") in ("step", "round"):
        lines.joined, lines.step = True, step
        value = data.get(LOSS) if metric == LOSS else None
    else:
        metrics = data.get("metrics")
        value = metrics.get(metric) if data.get("event") == "evaluated" and isinstance(metrics, dict) else None
    if isinstance(value, (int, float)) and isfinite(value):
        lines.series[step] = float(value)
