"""Mirrors of a run that this process drives: an observer feeds them, and their failures become events of the record.

A tracker never stops or slows a training: a mirror has a thread and a process of its own, and ends with the driver.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from gangline.errors import ConfigError, GanglineError, StorageError
from gangline.launch.protocol import GangEvent
from gangline.line.record.context import RunContext, unchanged
from gangline.line.record.observer import Observer, ObserverRelay
from gangline.metrics.exporter import DriverExporter
from gangline.metrics.record_values import price_at
from gangline.spec.record import Record, StageInfo
from gangline.trackers.mirror import Mirror, MirrorSource, entry_of
from gangline.trackers.operations import end_points, points_of, tracked_run
from gangline.trackers.protocol import Point, TrackedRun
from gangline.trackers.stored_run import stored_events
from gangline.trackers.writer_process import WriterProcess, rewrites, trackers_of, writer_settings

TRACKER = "tracker"
"""Kind of an event that says what a tracker did not take."""
_STARTS = ("train", "report")
"""Stages at whose start writers are started, so that they are ready once there is something to write."""


@contextmanager
def mirrored_to_trackers(ctx: RunContext, exporter: DriverExporter | None) -> Iterator[None]:
    """While the block drives the run, the trackers of the site get what happens; `exporter` counts their failures."""
    names, unknown = trackers_of(ctx.site, ctx.line.project.track)
    if unknown:
        ctx.observer.note(
            f"project.track: this site has no tracker {', '.join(unknown)}; it has {', '.join(ctx.site.track)}"
        )
    observer = TrackObserver(ctx, names, exporter)
    ctx.observer = observer
    try:
        yield
    finally:
        ctx.observer = observer.inner
        observer.close()


class TrackObserver(ObserverRelay):
    """Feeds a mirror for each tracker with the events of rank 0 of the training."""

    def __init__(self, ctx: RunContext, names: list[str], exporter: DriverExporter | None) -> None:
        super().__init__(ctx.observer)
        self.inner: Observer = ctx.observer
        self._ctx, self._names, self._exporter = ctx, names, exporter
        self._mirrors: dict[str, Mirror] = {}

    def stage_started(self, name: str) -> None:
        if name in _STARTS:
            self._start()
        super().stage_started(name)

    def progress(self, stage: str, event: GangEvent) -> None:
        super().progress(stage, event)
        if stage == "train" and event.kind == "progress" and (entry := entry_of(event.data)) is not None:
            for mirror in self._mirrors.values():
                mirror.feed(entry)
        self._record_failures()

    def stage_ended(self, name: str, info: StageInfo) -> None:
        super().stage_ended(name, info)
        self._record_failures()

    def close(self) -> None:
        """Write the end of a run that has ended; what a tracker did not take becomes an event of the record."""
        record = self._ctx.record
        if record.run.state == "ended":
            self._start()
        for name, mirror in self._mirrors.items():
            try:
                ending = self._ending(name, record)
            except StorageError as error:
                self.inner.note(f"{name} does not have the end of this run: {error}")
                ending = None
            mirror.end(ending)
        for mirror in self._mirrors.values():
            mirror.close()
        self._record_failures()
        if self._ctx.pending:
            try:
                self._ctx.change(unchanged)
            except GanglineError as error:
                self.inner.note(f"the record does not say what trackers lack: {error}")

    def _ending(self, name: str, record: Record) -> tuple[TrackedRun, list[Point]] | None:
        """The run, if it has ended, and the points that its record adds."""
        if record.run.state != "ended":
            return None
        events = stored_events(self._ctx.store, record)
        has_curve = any(point.metric == record.curve.metric for event in events for point in points_of(event))
        return self._run(name), list(end_points(record, has_curve=has_curve))

    def _run(self, name: str) -> TrackedRun:
        site = self._ctx.site
        return tracked_run(self._ctx.record, experiment=site.track[name].experiment, price=price_at(site))

    def _start(self) -> None:
        """Start the mirrors that do not run yet; a tracker whose token is not there becomes an event."""
        for name in [name for name in self._names if name not in self._mirrors]:
            try:
                self._mirrors[name] = self._mirror(name)
            except ConfigError as error:
                self._names.remove(name)
                self._ctx.record_event("train", TRACKER, f"{name} gets nothing of this run: {error}")

    def _mirror(self, name: str) -> Mirror:
        ctx, table = self._ctx, self._ctx.site.track[name]
        settings = writer_settings(ctx.repo, ctx.site, name, environ=ctx.environ)
        source = MirrorSource(
            start=lambda: WriterProcess(settings, table=table, environ=ctx.environ),
            run=lambda: self._run(name),
            history=lambda: stored_events(ctx.store, ctx.record),
            may_write=lambda: ctx.read_current().run.driver.token == ctx.driver.token,
            count_failure=lambda: self._count_failure(name),
        )
        return Mirror(name, source, every_seconds=table.every_seconds, needs_all=rewrites(settings))

    def _count_failure(self, name: str) -> None:
        if self._exporter is not None:
            self._exporter.tracker_failed(self._ctx.record.run.id, name)

    def _record_failures(self) -> None:
        for mirror in self._mirrors.values():
            while not mirror.sentences.empty():
                self._ctx.record_event("train", TRACKER, mirror.sentences.get())
