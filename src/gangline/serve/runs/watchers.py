"""Watchers of runs: one poller per run, however many subscribers; each subscriber has a short queue.

A poller reads the record once a second and follows the running gang. A slow subscriber loses the oldest events and
never delays the poller: every event holds the whole state, so the newest is enough.
"""

import asyncio
import threading
from contextlib import suppress

import structlog

from gangline.errors import GanglineError, IntegrityError, StorageError
from gangline.line.gangs.launchers import open_launcher
from gangline.line.request.targets import site_of
from gangline.line.run.watch import running_gangs
from gangline.report.progress import StageProgress
from gangline.serve.context.quarantine import refuse_record
from gangline.serve.context.service_context import ServiceContext
from gangline.serve.runs.record_reader import read_record
from gangline.serve.runs.run_events import GangProgress, RunEvent, end_event, record_event
from gangline.serve.runs.run_stopper import gangs_folder
from gangline.serve.web.responses import RequestRefused
from gangline.spec.record import Record
from gangline.spec.run_flags import is_reported

POLL_SECONDS = 1.0
QUEUED = 32
MOST_WATCHES = 64
log = structlog.get_logger()


class Subscriber:
    """A subscriber: a queue on its event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._queue: asyncio.Queue[RunEvent] = asyncio.Queue(QUEUED)

    def publish(self, event: RunEvent) -> None:
        """Publish an event; any thread may call it."""
        self._loop.call_soon_threadsafe(self._put, event)

    async def next(self, seconds: float) -> RunEvent | None:
        """The next event; None if there was none within the time limit."""
        try:
            return await asyncio.wait_for(self._queue.get(), seconds)
        except TimeoutError:
            return None

    def _put(self, event: RunEvent) -> None:
        if self._queue.full():
            self._queue.get_nowait()
        self._queue.put_nowait(event)


class RunWatchers:
    """All watches of a service; a watch ends with its last subscriber."""

    def __init__(self, context: ServiceContext) -> None:
        self._context = context
        self._pollers: dict[str, _RunPoller] = {}
        self._lock = threading.Lock()

    def subscribe(self, record: Record, subscriber: Subscriber) -> None:
        """Tell `subscriber` of a run from now on.

        Raises:
            RequestRefused: Too many runs are watched.
        """
        with self._lock:
            poller = self._pollers.get(record.run.id)
            if poller is None or poller.is_over:
                if len(self._pollers) >= MOST_WATCHES:
                    raise RequestRefused(
                        429, f"{MOST_WATCHES} runs are watched already; again later", {"Retry-After": "30"}
                    )
                poller = self._pollers[record.run.id] = _RunPoller(self._context, record)
            poller.add(subscriber)

    def unsubscribe(self, run: str, subscriber: Subscriber) -> None:
        """Remove a subscriber; a poller without any stops."""
        with self._lock:
            poller = self._pollers.get(run)
            if poller is not None and poller.unsubscribe(subscriber):
                del self._pollers[run]

    def progress(self, run: str) -> StageProgress | None:
        """State of the running stage of a watched run."""
        poller = self._pollers.get(run)
        return poller.progress() if poller else None

    def close(self) -> None:
        with self._lock:
            for poller in self._pollers.values():
                poller.stop()
            self._pollers.clear()

    def __len__(self) -> int:
        return len(self._pollers)


class _RunPoller:
    """The threads of one run: one reads its record, one at a time follows a gang."""

    def __init__(self, context: ServiceContext, record: Record) -> None:
        self._context, self._record = context, record
        self._subscribers: list[Subscriber] = []
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._followed: set[str] = set()
        self._last: RunEvent | None = None
        self._progress_view: GangProgress | None = None
        threading.Thread(target=self._read, name=f"watch {record.run.id}", daemon=True).start()

    @property
    def is_over(self) -> bool:
        return self._stop.is_set()

    def add(self, subscriber: Subscriber) -> None:
        with self._lock:
            self._subscribers.append(subscriber)
            if self._last is not None:
                subscriber.publish(self._last)

    def unsubscribe(self, subscriber: Subscriber) -> bool:
        """True where no client is left; then the watch ends."""
        with self._lock:
            if subscriber in self._subscribers:
                self._subscribers.remove(subscriber)
            if not self._subscribers:
                self._stop.set()
            return not self._subscribers

    def stop(self) -> None:
        self._stop.set()

    def progress(self) -> StageProgress | None:
        return self._progress_view.progress() if self._progress_view else None

    def _publish(self, event: RunEvent) -> None:
        with self._lock:
            if event.kind == "progress":
                self._last = event
            for subscriber in self._subscribers:
                subscriber.publish(event)

    def _read(self) -> None:
        prefix = self._record.prefix
        seen = self._record.seq
        self._follow_gang()
        while not self._stop.wait(POLL_SECONDS):
            try:
                found = read_record(self._context.store, prefix)
            except IntegrityError as error:  # shown as it was, until the record can be read again
                with suppress(StorageError):
                    refuse_record(self._context.quarantine, self._context.store, f"{prefix}/record.json", error)
                continue
            except GanglineError as error:
                log.warning("watch_record", run=self._record.run.id, cause=str(error))
                continue
            if found is None:
                return self._stop.set()
            record = found[1]
            if record.seq != seen:
                seen, self._record = record.seq, record
                self._publish(record_event(record))
            if is_reported(record):
                self._publish(end_event(record))
                return self._stop.set()
            self._follow_gang()
        return None

    def _follow_gang(self) -> None:
        """Begin to follow the gang of the stage that runs, once."""
        record = self._record
        found = running_gangs(record)
        if found is None:
            return
        running, gangs = found
        gang = next((each for each in gangs if each not in self._followed), None)
        if gang is not None:
            self._followed.add(gang)
            threading.Thread(target=self._progress, args=(record, running, gang), daemon=True).start()

    def _progress(self, record: Record, running: str, gang: str) -> None:
        context = self._context
        try:
            launcher = open_launcher(
                gangs_folder(context, record),
                site=site_of(record, context.site),
                environ=context.environ,
                store=context.store,
            )
            if launcher.status(gang).state == "absent":
                self._followed.discard(gang)  # not there yet, or on another machine: the next look tries again
                return
            self._progress_view = GangProgress(running, record)
            for event in launcher.follow(gang):
                if self._stop.is_set() or event.end is not None:
                    return
                if (update := self._progress_view.see(event)) is not None:
                    self._publish(update)
        except GanglineError as error:
            log.warning("watch_gang", run=record.run.id, cause=str(error))
