"""Watchers of runs and the events that they publish: the record changed, progress of the gang, the end of the run.

There is one poller per run, however many subscribers; each subscriber has a short queue.

A poller reads the record once a second and follows the running gang. A slow subscriber loses the oldest events and
never delays the poller: every event holds the whole state, so the newest is enough.
"""

import asyncio
import json
import threading
from collections.abc import Callable
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass
from math import isfinite
from time import monotonic
from typing import Any, Literal

import structlog

from gangline.errors import GanglineError, IntegrityError, StorageError
from gangline.launch.protocol import GangEvent
from gangline.line.gangs.launchers import open_launcher
from gangline.line.request.targets import site_of
from gangline.line.run.watch import running_gangs
from gangline.report.facts import stages_in_order, verdict_reason, verdict_text
from gangline.report.progress import StageProgress
from gangline.serve.context.quarantine import refuse_record
from gangline.serve.context.service_context import ServiceContext
from gangline.serve.runs.record_reader import read_record
from gangline.serve.runs.run_stopper import gangs_folder
from gangline.serve.web.responses import RequestRefused
from gangline.spec.record import Record
from gangline.spec.run_flags import is_reported

POLL_SECONDS = 1.0
PROGRESS_SECONDS = 0.5
QUEUED = 32
MOST_WATCHES = 64
log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class RunEvent:
    """One event of a stream."""

    kind: Literal["record", "progress", "end"]
    data: str
    """JSON."""
    seq: int | None = None
    """Number of the record; a stream resumes after it."""


class GangProgress:
    """Events of a gang as what pages show, steps at most twice a second."""

    def __init__(self, running: str, record: Record, clock: Callable[[], float] = monotonic) -> None:
        plan = record.plan
        self._progress = StageProgress(running, plan=plan.name if plan else "", steps=plan.steps if plan else None)
        self._clock = clock
        self._published = float("-inf")
        self._lock = threading.Lock()

    def see(self, event: GangEvent) -> RunEvent | None:
        """Add an event; returns what to show if it is time to."""
        with self._lock:
            self._progress.see(event)
            if event.data.get("event") == "step" and self._clock() - self._published < PROGRESS_SECONDS:
                return None
            self._published = self._clock()
            return RunEvent("progress", _json(progress_fields(self._progress)))

    def progress(self) -> StageProgress:
        """A copy, for a page that is drawn now."""
        with self._lock:
            return deepcopy(self._progress)


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


def progress_fields(progress: StageProgress) -> dict[str, Any]:
    """What is not known yet is None."""
    loss = progress.losses[-1] if progress.losses else None
    return {
        "stage": progress.stage,
        "sentence": progress.sentence(),
        "step": progress.step or None,
        "steps": progress.steps,
        "loss": loss if loss is not None and isfinite(loss) else None,
        "tokens_per_second": progress.tokens_per_second,
        "eta_seconds": progress.eta_seconds,
    }


def record_event(record: Record) -> RunEvent:
    """The event with the state of a run."""
    begun = [name for name, info in stages_in_order(record) if info.state != "waiting"]
    data = {
        "run": record.run.id,
        "seq": record.seq,
        "state": record.run.state,
        "verdict": record.run.verdict,
        "words": _words(record),
        "stage": begun[-1] if begun else "resolve",
    }
    return RunEvent("record", _json(data), record.seq)


def end_event(record: Record) -> RunEvent:
    """The last event of a run."""
    run = record.run
    fields = {"run": run.id, "verdict": run.verdict, "words": _words(record), "reason": verdict_reason(record)}
    return RunEvent("end", _json(fields))


def _words(record: Record) -> str:
    """The verdict as people read it; empty while there is none."""
    return verdict_text(record) if record.run.verdict else ""


def _json(data: dict[str, Any]) -> str:
    return json.dumps(data, sort_keys=True, ensure_ascii=False, allow_nan=False)
