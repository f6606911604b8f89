"""Reports the progress of a run to its forge, as an observer around another one; a failing forge ends no run.

A status is sent when its state changes, and at most once a minute while only its description changes. While a gang
waits, the comment on its pull request says for whom. The final comment is left to the report stage.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Protocol

from gangline.errors import GanglineError, StorageError
from gangline.forge.factory import forge_of_project, open_forges
from gangline.forge.protocol import CommitStatus, Forge
from gangline.forge.pull_request_comment import write_comment
from gangline.forge.status_messages import NOT_STARTED, run_page, statuses
from gangline.forge.status_queue import QueuedUpdate, StatusQueue
from gangline.launch.protocol import GangEvent
from gangline.report.progress import StageOutlook, StageProgress
from gangline.spec.config.site import Site
from gangline.spec.record import Driver, Event, Record, StageInfo, Waiting

FINAL_UPDATE_SECONDS = 15.0
"""How long the end of a run waits for a forge."""
_COMMENT = "comment"


class RunObserver(Protocol):
    """Observer of a run, called in the driver's thread."""

    def run_started(self, record: Record) -> None: ...

    def stage_started(self, name: str) -> None:
        """A stage starts."""

    def progress(self, stage: str, event: GangEvent) -> None: ...

    def stage_ended(self, name: str, info: StageInfo) -> None: ...

    def note(self, text: str) -> None: ...

    def run_ended(self, record: Record) -> None:
        """The run ended; `record` has its verdict."""


class ReportedRun(Protocol):
    """The run of a driver, as far as the reporter needs it."""

    site: Site
    environ: Mapping[str, str]
    observer: RunObserver

    @property
    def record(self) -> Record:
        """Record as the driver last wrote it."""
        ...

    @property
    def driver(self) -> Driver:
        """Who drives the run."""

    @property
    def pending(self) -> Sequence[Event]:
        """Events that the next change writes into the record."""
        ...

    def change(self, change: Callable[[Record], Record]) -> Record: ...

    def record_event(self, stage: str, kind: str, text: str, *, notify: bool = True) -> None:
        """Add an event to `pending`."""
        ...


@contextmanager
def reporting_to_forge(ctx: ReportedRun) -> Iterator[None]:
    """While the block drives, the forge of the project gets statuses; without a forge or a token nothing happens."""
    place = forge_of_project(ctx.site, ctx.record.run.project)
    if place is None or ctx.site.forge[place[0]].token is None or ctx.record.commit.patch is not None:
        yield
        return
    try:
        forge = open_forges(ctx.site, ctx.environ)[place[0]]
        url = forge.commit_url(place[1], ctx.record.commit.sha)
        if ctx.record.links.get("forge") != url:
            ctx.change(lambda record: replace(record, links=record.links | {"forge": url}))
    except GanglineError as error:
        ctx.record_event("resolve", "forge", f"statuses of this run are not reported: {error}")
        yield
        return
    reporter = RunReporter(ctx, forge, place[1])
    ctx.observer = reporter
    is_store_away = False
    try:
        yield
    except GanglineError as error:
        is_store_away = isinstance(error, StorageError)
        reporter.leave(str(error))
        raise
    finally:
        reporter.close(remember=not is_store_away)
        ctx.observer = reporter.inner


class RunReporter:
    """An observer that passes everything on to another one, and reports it to the forge."""

    def __init__(self, ctx: ReportedRun, forge: Forge, repository: str) -> None:
        self.inner: RunObserver = ctx.observer
        self._ctx = ctx
        self._forge = forge
        self._repository = repository
        self._queue = StatusQueue(self._deliver)
        self._reported: dict[str, CommitStatus] = {}
        self._outlook = StageOutlook()
        self._progress = StageProgress("")
        self._running: str | None = None
        self._said: set[str] = set()

    def run_started(self, record: Record) -> None:
        self._outlook.learn(record)
        self.inner.run_started(record)
        self._reported = {
            status.context: status for status in statuses(record, url=self._url) if self._was_reported(status)
        }
        self._report()

    def stage_started(self, name: str) -> None:
        """Pass it on, and report the stage."""
        self._progress, self._running = self._outlook.begin(name), name
        self.inner.stage_started(name)
        if name == "report":
            self._queue.withdraw(_COMMENT, seconds=FINAL_UPDATE_SECONDS)
            self._reported = self._reported if self._ctx.driver.kind == "run" else {}
        self._report()

    def progress(self, stage: str, event: GangEvent) -> None:
        self._progress.see(event)
        self.inner.progress(stage, event)
        self._report()
        if event.kind == "waiting":
            self._tell_pull_request(event.waiting)

    def stage_ended(self, name: str, info: StageInfo) -> None:
        self._outlook.stage_ended(name, info)
        self._running = None
        self.inner.stage_ended(name, info)
        self._report()

    def note(self, text: str) -> None:
        self.inner.note(text)

    def run_ended(self, record: Record) -> None:
        """Pass it on, and report the verdict."""
        self.inner.run_ended(record)
        self._report()

    def leave(self, reason: str) -> None:
        """The driver stops and the run stays open: report the reason as a status and in the pull request."""
        if self._ctx.record.run.state == "open":
            self._report(reason)
            self._tell_pull_request(None)

    def close(self, *, remember: bool) -> None:
        """Send the last status; failures meanwhile become an event of the record, if it can be written."""
        self._queue.close(seconds=FINAL_UPDATE_SECONDS)
        self._record_errors()
        if self._ctx.pending and remember:
            try:
                self._ctx.change(lambda record: record)
            except GanglineError as error:
                self.inner.note(f"the record could not be reported: {error}")

    def _report(self, words: str | None = None) -> None:
        self._record_errors()
        record = self._ctx.record
        live = self._progress.sentence() if words is None else words
        for status in statuses(record, running=self._running, live=live, url=self._url):
            before = self._reported.get(status.context)
            if status != before:
                self._reported[status.context] = status
                self._queue.put(status.context, status, urgent=before is None or before.state != status.state)

    @property
    def _url(self) -> str | None:
        return run_page(self._ctx.record, self._ctx.site.serve.public_url)

    def _was_reported(self, status: CommitStatus) -> bool:
        """A driver of one stage relies on those before it; the report stage reports all stages once more."""
        return self._ctx.driver.kind != "run" and (status.state == "success" or status.description == NOT_STARTED)

    def _tell_pull_request(self, waiting: Waiting | None) -> None:
        record = self._ctx.record
        if record.commit.pull_request is None:
            return
        if record.gang is not None and waiting is not None:
            record = replace(record, gang=replace(record.gang, waiting=waiting))

        def send() -> None:
            write_comment(self._forge, self._repository, self._ctx.site, record)

        self._queue.put(_COMMENT, send, urgent=waiting is None)

    def _deliver(self, update: QueuedUpdate) -> None:
        if isinstance(update, CommitStatus):
            self._forge.set_status(self._repository, self._ctx.record.commit.sha, update)
        else:
            update()

    def _record_errors(self) -> None:
        while not self._queue.errors.empty():
            sentence = self._queue.errors.get()
            if sentence not in self._said:
                self._said.add(sentence)
                self._ctx.record_event(self._running or "report", "forge", sentence)
