"""Context of a run: the record, line, store, launcher and observer that a stage may use; and the result of a stage.

The time of a stage counts while a driver works on it, and between two drivers while the gang runs. The time between the
end of a gang, or the death of a driver without a gang, and the next driver does not count.
"""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from gangline.errors import GanglineError
from gangline.launch.protocol import Launcher
from gangline.line.record import states
from gangline.line.record.observer import Observer
from gangline.line.record.runs import read_base
from gangline.line.record.states import uncounted_since
from gangline.line.record.store import Change, RecordStore
from gangline.signing.record_seal import Sealer
from gangline.spec import run_flags
from gangline.spec.config.line import Line
from gangline.spec.config.site import Site
from gangline.spec.plan import Plan
from gangline.spec.record import STAGES, Driver, Event, Record
from gangline.spec.run_flags import stage
from gangline.storage import site_paths
from gangline.storage.objects.blobs import get_blob
from gangline.storage.objects.protocol import ObjectStore
from gangline.units import now, parse_time

if TYPE_CHECKING:
    from gangline.git.repository import Repository
    from gangline.line.record.earlier_runs import EarlierRuns


def unchanged(record: Record) -> Record:
    """The change that changes nothing: a driver writes it to prove that it still holds the run."""
    return record


@dataclass(frozen=True, kw_only=True, slots=True)
class StageResult:
    """Result of a stage, written in one change with the stage's state."""

    message: str
    """The line that the user sees."""
    state: Literal["done", "taken", "skipped", "failed"] = "done"
    key: str | None = None
    taken_from: str | None = None
    outputs: dict[str, Any] = field(default_factory=dict)
    change: Change = unchanged
    """Further changes of the record."""
    error: GanglineError | None = None
    """Error of a failed stage; decides exit code and verdict."""


@dataclass(kw_only=True, slots=True)
class StageTime:
    """Clock of one stage under one driver."""

    recorded_seconds: float
    """Seconds that earlier drivers recorded."""
    recorded_until: datetime
    """End of the time that they recorded."""
    start: datetime
    """When this driver took the stage over."""
    start_monotonic: float
    """The same on the monotonic clock."""
    gang_seconds: float = 0.0
    """Time between two drivers during which the gang ran."""

    @classmethod
    def of(cls, record: Record, name: str) -> Self:
        """A clock that starts now; `record` is as it was before this driver wrote to it."""
        start = datetime.now(UTC)
        return cls(
            recorded_seconds=stage(record, name).seconds or 0.0,
            recorded_until=parse_time(uncounted_since(record, name)) or start,
            start=start,
            start_monotonic=time.monotonic(),
        )

    def gang_found(self, ended: str | None) -> None:
        """Count a gang that ran between two drivers until `ended`; None: it still runs, or its end has no time.

        Of several gangs the last one counts: the ones before it had ended when it was started.
        """
        until = min(parse_time(ended) or self.start, self.start)
        self.gang_seconds = max((until - self.recorded_until).total_seconds(), 0.0)

    @property
    def seconds(self) -> float:
        """Duration up to now."""
        return self.recorded_seconds + self.gang_seconds + time.monotonic() - self.start_monotonic


@dataclass(kw_only=True)
class RunContext:
    """All that a stage gets: the run, and what its driver may use for it."""

    repo: Path
    """Folder of line.toml on this machine."""
    site: Site
    environ: Mapping[str, str]
    store: ObjectStore
    records: RecordStore
    record: Record
    """The record that this driver wrote last."""
    line: Line
    driver: Driver
    launcher: Launcher
    observer: Observer
    pending: list[Event] = field(default_factory=list)
    """Events that go into the record with its next change."""
    follow_until: float | None = None
    """Deadline on the monotonic clock, after which the driver stops following; gang and run continue."""
    stage_time: StageTime | None = None
    """Clock of the stage that runs now."""

    @property
    def home(self) -> Path:
        """The folder `.gangline` of the repository."""
        return site_paths.home(self.repo)

    @property
    def sealer(self) -> Sealer:
        """Seals and verifies records with the site's keys."""
        assert self.records.sealer is not None, "a driver has the site's keys"
        return self.records.sealer

    @cached_property
    def repository(self) -> "Repository":
        """The git repository that `repo` is in."""
        from gangline.git.repository import Repository

        return Repository.at(self.repo)

    @cached_property
    def earlier_runs(self) -> "EarlierRuns":
        """Runs of this commit and its ancestors, read on first use."""
        from gangline.line.record.earlier_runs import find_earlier_runs

        run = self.record.run
        return find_earlier_runs(
            self.store, self.repository, project=run.project, commit=self.record.commit.sha, run=run.id,
            holds=self.sealer.holds,
        )  # fmt: skip

    @cached_property
    def plan(self) -> Plan:
        """The run's plan, which exists once the plan stage is done."""
        assert self.record.plan is not None, self.record.run.id
        return Plan.from_json(get_blob(self.store, self.record.plan.key))

    @cached_property
    def base(self) -> Record | None:
        """Record of the run that this one is compared with, chosen when the run was created."""
        return read_base(self.store, self.record, self.sealer)

    def change(self, change: Change) -> Record:
        """Write one change as the driver, together with the pending events."""
        pending, self.pending = tuple(self.pending), []

        def with_events(record: Record) -> Record:
            changed = change(record)
            for event in pending:
                changed = states.add_event(changed, now=event.time, stage=event.stage, kind=event.kind, text=event.text)
            return changed

        self.record = self.records.change(with_events, driver=self.driver)
        return self.record

    def read_current(self) -> Record:
        """The stored record, with the writes of others; raises IntegrityError if its seal is invalid."""
        return self.records.read_sealed()

    def cancel_requested(self) -> str | None:
        """Reason of a requested cancellation, from the stored record."""
        current = self.records.read()
        return current.run.cancel_requested if current else None

    def record_event(self, stage: str, kind: str, text: str, *, notify: bool = True) -> None:
        """Add an event to the next change of the record; with `notify`, also show `text` to the observer now."""
        self.pending.append(Event(time=now(), stage=stage, kind=kind, text=text))
        if notify:
            self.observer.note(text)

    def output(self, stage: str, name: str) -> Any:
        """Output `name` of an earlier stage; None if it has none of that name."""
        return run_flags.stage(self.record, stage).outputs.get(name)

    def find_cached_stages(self, name: str, key: str) -> Iterator[Record]:
        """Earlier runs whose stage `name` has this key, nearest first; none for a later attempt (`run --again`)."""
        if self.record.run.attempt > 1:
            return iter(())
        return self.earlier_runs.with_stage(name, key, taker=self.record)

    def find_cached_stage(self, name: str, key: str) -> Record | None:
        """The nearest earlier run whose stage can be reused; of a stage after train one of the same training."""
        records = self.find_cached_stages(name, key)
        if STAGES.index(name) > STAGES.index("train"):
            trained = states.stage_origin(self.record, "train")
            records = (record for record in records if states.stage_origin(record, "train") == trained)
        return next(records, None)
