"""Metric series of the service and of ended runs, from the catalogue. No I/O, no clock.

The final metrics of the newest ended runs of each project are kept for scrapers that come late; they are read from
records, so a restarted service shows what the one before it showed.
"""

import threading
from bisect import insort
from collections.abc import Iterable, Mapping
from typing import Literal

from gangline.metrics.exposition import render_text
from gangline.metrics.from_events import set_end_series
from gangline.metrics.labels import CALL_OUTCOMES, ORDER_STATES, VERDICTS, exit_label, gate_label
from gangline.metrics.record_values import Price, cost_of, created_at, ended_at, gpu_seconds, price_at
from gangline.metrics.series_store import SeriesStore
from gangline.spec.config.site import Site
from gangline.spec.record import Record
from gangline.spec.run_flags import flags_of, stopped_early

NEWEST = 50
"""Runs of one project."""


class FinalMetrics:
    """Thread-safe."""

    def __init__(self, book: SeriesStore, *, price: Price | None = None, newest: int = NEWEST) -> None:
        self._book, self._price, self._newest = book, price, newest
        self._shown: dict[str, list[tuple[float, str]]] = {}
        """Shown runs of each project: (end, run), oldest first."""
        self._lock = threading.Lock()

    def rebuild(self, records: Iterable[Record]) -> None:
        """Show the newest of `records`; those that have not ended are passed over."""
        for record in records:
            self.show(record)

    def show(self, record: Record) -> None:
        """Show the final values of a complete run without flags; above the limit its project's oldest is dropped."""
        if record.run.state != "ended" or stopped_early(record) or flags_of(record):
            return  # boards and alerts hold what is shown here against the commits of the project
        run = record.run.id
        with self._lock:
            shown = self._shown.setdefault(record.run.project, [])
            shown[:] = [each for each in shown if each[1] != run]
            insort(shown, (ended_at(record), run))
            while len(shown) > self._newest:
                self._book.forget(shown.pop(0)[1])
            if any(each[1] == run for each in shown):
                set_end_series(self._book, record, price=self._price)


DeliveryEvent = Literal["push", "pull_request", "other"]
DeliveryOutcome = Literal["accepted", "repeated", "ignored", "forged", "malformed", "oversize", "unknown", "failed"]
CallOutcome = Literal["ok", "away", "refused", "failed"]
StoreOutcome = Literal["ok", "conflict", "failed"]
REMEMBERED = 10_000
"""Runs that are remembered as counted."""


class Telemetry:
    """Thread-safe; one a service."""

    def __init__(self, *, projects: Iterable[str] = (), forges: Iterable[str] = (), price: Price | None = None) -> None:
        """Set counters with known labels to zero, so that a first event counts as an increase.

        Args:
            projects: Names of projects; others are added when a run of theirs is seen.
            forges: As in `[forge.NAME]`; any other name of a delivery is counted as no forge.
            price: Of a GPU hour; None: no money is reported.
        """
        self.book = SeriesStore()
        self._price = price
        self._finals = FinalMetrics(self.book, price=price)
        self._forges = frozenset(forges)
        self._projects: set[str] = set()
        self._counted: dict[str, None] = {}
        """Runs that are in the totals, oldest first."""
        self._lock = threading.Lock()
        for project in projects:
            self._add_project(project)
        for forge in sorted(self._forges):
            for outcome in CALL_OUTCOMES:
                self.book.add("forge_requests_total", 0.0, forge=forge, outcome=outcome)

    @classmethod
    def of(cls, site: Site) -> "Telemetry":
        """Telemetry of a service at `site`."""
        projects = {project for forge in site.forge.values() for project in forge.projects.values()}
        return cls(projects=projects | set(site.serve.repositories), forges=site.forge, price=price_at(site))

    def webhook(self, forge: str, event: DeliveryEvent, outcome: DeliveryOutcome, seconds: float) -> None:
        """A delivery was answered, `seconds` after its first byte."""
        name = forge if forge in self._forges else ""
        self.book.add("webhook_requests_total", forge=name, event=event, outcome=outcome)
        self.book.observe("webhook_ack_duration_seconds", seconds, forge=name)

    def forge_request(self, forge: str, outcome: CallOutcome) -> None:
        """Count one request to a forge."""
        self.book.add("forge_requests_total", forge=forge, outcome=outcome)

    def orders(self, counts: Mapping[str, int], oldest_seconds: float) -> None:
        """Orders by state, and how long the oldest waits that may start; 0: none waits."""
        for state in ORDER_STATES:
            self.book.set("queue_items", counts.get(state, 0), state=state)
        self.book.set("queue_oldest_seconds", oldest_seconds)

    def runs_active(self, counts: Mapping[str, int]) -> None:
        """Open runs by project; a project that is not named has none."""
        for project in counts:
            self._add_project(project)
        for project in sorted(self._projects):
            self.book.set("runs_active", counts.get(project, 0), project=project)

    def leases_overdue(self, count: int) -> None:
        """Open runs without a driver."""
        self.book.set("leases_overdue", count)

    def records_refused(self, count: int) -> None:
        """Records, open markers and leases that could not be read when they were looked at last."""
        self.book.set("records_refused", count)

    def store_request(self, operation: str, outcome: StoreOutcome, seconds: float) -> None:
        """Count one request to the store, and how long it took."""
        self.book.add("store_requests_total", operation=operation, outcome=outcome)
        self.book.observe("store_request_duration_seconds", seconds, operation=operation)
        self.book.add("store_conflicts_total", float(outcome == "conflict"))

    def conditional_writes(self, ok: bool) -> None:
        """Whether the store has conditional writes."""
        self.book.set("store_conditional_writes", float(ok))

    def run_ended(self, record: Record) -> None:
        """Count a run and show its finals; called twice, it counts once."""
        if record.run.state == "ended" and self._is_new(record.run.id):
            self._add_project(record.run.project)
            self._count_run(record)
            self._finals.show(record)

    def rebuild(self, records: Iterable[Record]) -> None:
        """Finals of runs that ended before this service began; totals count from its start, as counters do."""
        for record in records:
            if record.run.state == "ended" and self._is_new(record.run.id):
                self._add_project(record.run.project)
                self._finals.show(record)

    def render(self) -> tuple[str, bytes]:
        """Media type and text for a scraper."""
        return render_text(self.book)

    def _is_new(self, run: str) -> bool:
        with self._lock:
            if run in self._counted:
                return False
            self._counted[run] = None
            if len(self._counted) > REMEMBERED:
                del self._counted[next(iter(self._counted))]
            return True

    def _add_project(self, project: str) -> None:
        with self._lock:
            if project in self._projects:
                return
            self._projects = {*self._projects, project}
        for verdict in VERDICTS:
            self.book.add("runs_total", 0.0, project=project, verdict=verdict)

    def _count_run(self, record: Record) -> None:
        project = record.run.project
        self.book.add("runs_total", project=project, verdict=record.run.verdict or "")
        self.book.observe("result_duration_seconds", max(0.0, ended_at(record) - created_at(record)), project=project)
        for gate in record.gates:
            self.book.add("gate_verdicts_total", project=project, gate=gate_label(gate.name), verdict=gate.verdict)
        for stage, info in record.stages.items():
            if info.state == "taken":
                self.book.add("stages_taken_total", project=project, stage=stage)
            elif info.seconds is not None:
                self.book.observe("stage_duration_seconds", info.seconds, project=project, stage=stage)
            if info.state == "failed":
                self.book.add("stage_failures_total", project=project, stage=stage, exit=exit_label(info.exit or 1))
        if allocated := gpu_seconds(record):
            self.book.add("gpu_seconds_total", allocated, project=project)
            if self._price and (cost := cost_of(record, self._price)) is not None:
                self.book.add("cost_total", cost, project=project, currency=self._price.currency)
