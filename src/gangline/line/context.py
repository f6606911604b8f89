"""What a stage may reach: its run's record, line, store, launcher, observer. And what a stage hands back."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from gangline.errors import GanglineError
from gangline.launch.protocol import Launcher
from gangline.line import places, states
from gangline.line.clock import now
from gangline.line.observer import Observer
from gangline.line.record_store import Change, RecordStore
from gangline.line.seal import Sealer
from gangline.line.stage_time import StageTime
from gangline.spec.line import Line
from gangline.spec.plan import Plan
from gangline.spec.record import Driver, Event, Record, run_prefix
from gangline.spec.site import Site
from gangline.storage.blobs import get_blob
from gangline.storage.protocol import ObjectStore

if TYPE_CHECKING:
    from gangline.line.base import Past
    from gangline.line.git import Repository


def unchanged(record: Record) -> Record:
    return record


@dataclass(frozen=True, kw_only=True, slots=True)
class StageResult:
    """How a stage ended, to be written in one step with its state."""

    message: str
    """The line that the user sees."""
    state: Literal["done", "taken", "skipped", "failed"] = "done"
    key: str | None = None
    taken_from: str | None = None
    outputs: dict[str, Any] = field(default_factory=dict)
    change: Change = unchanged
    """What else the record learns."""
    error: GanglineError | None = None
    """Of a failed one: gives exit code and verdict."""


@dataclass(kw_only=True)
class Context:
    """One driver's hold on one run; stages get nothing else."""

    repo: Path
    """Folder of line.toml on this machine."""
    site: Site
    environ: Mapping[str, str]
    store: ObjectStore
    records: RecordStore
    record: Record
    """As this driver last wrote it."""
    line: Line
    driver: Driver
    launcher: Launcher
    observer: Observer
    pending: list[Event] = field(default_factory=list)
    """Events that go into the record with its next change."""
    follow_until: float | None = None
    """On the monotonic clock: then a driver that only looks in leaves the gang alone, and the run open."""
    stage_time: StageTime | None = None
    """Of the stage that runs now."""

    @property
    def home(self) -> Path:
        return places.home(self.repo)

    @property
    def sealer(self) -> Sealer:
        assert self.records.sealer is not None, "a driver has the site's keys"
        return self.records.sealer

    @cached_property
    def repository(self) -> "Repository":
        from gangline.line.git import Repository

        return Repository.at(self.repo)

    @cached_property
    def past(self) -> "Past":
        from gangline.line.base import look_back

        run = self.record.run
        return look_back(
            self.store, self.repository, project=run.project, commit=self.record.commit.sha, run=run.id,
            holds=self.sealer.holds,
        )  # fmt: skip

    @cached_property
    def plan(self) -> Plan:
        """The run's plan; there is one once the plan stage is done."""
        assert self.record.plan is not None, self.record.run.id
        return Plan.from_json(get_blob(self.store, self.record.plan.key))

    @cached_property
    def base(self) -> Record | None:
        """Record of the run that this one is compared with; fixed at the run's birth."""
        wanted = self.record.commit.base
        if wanted is None:
            return None
        prefix = run_prefix(self.record.run.project, wanted.commit, wanted.run)
        found = RecordStore(self.store, prefix).read()
        return None if found is None else self.sealer.check(found)

    def change(self, change: Change) -> Record:
        """Write one change as the driver, with the events that wait."""
        waiting, self.pending = tuple(self.pending), []

        def with_events(record: Record) -> Record:
            changed = change(record)
            for event in waiting:
                changed = states.add_event(changed, now=event.time, stage=event.stage, kind=event.kind, text=event.text)
            return changed

        self.record = self.records.change(with_events, driver=self.driver)
        return self.record

    def standing(self) -> Record:
        """The record as it stands, with what bystanders wrote; raises IntegrityError where its seal does not hold."""
        return self.records.read_sealed()

    def cancel_requested(self) -> str | None:
        """Why the run is to stop, as the record says now."""
        standing = self.records.read()
        return standing.run.cancel_requested if standing else None

    def remember(self, stage: str, kind: str, text: str, *, aloud: bool = True) -> None:
        """Tell the observer now, where `aloud`, and the record with its next change."""
        self.pending.append(Event(time=now(), stage=stage, kind=kind, text=text))
        if aloud:
            self.observer.note(text)

    def output(self, stage: str, name: str) -> Any:
        """What an earlier stage left for later ones; None where it left nothing of that name."""
        return states.stage(self.record, stage).outputs.get(name)
