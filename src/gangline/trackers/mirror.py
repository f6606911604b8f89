"""Mirror of one driven run in one tracker: a bounded queue that the driver feeds, and a thread that empties it.

Feeding takes microseconds and never waits. What the queue loses is read again from the events in the store, so the
tracker gets every point in the order of its event; of a tracker that stays away, `gangline track push` completes it.
"""

import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from gangline.errors import GanglineError
from gangline.trackers.operations import Event, points_of
from gangline.trackers.protocol import Point, TrackedRun
from gangline.trackers.writer_process import BATCH, WriterFailed, WriterProcess

MOST_POINTS = 10_000
FAILURES_BEFORE_EVENT = 3
"""Failures in a row after which the record says so."""
LONGEST_PAUSE = 600.0
DRAIN_SECONDS = 5.0
"""How long the end of a driver waits for a tracker that does not answer."""
LONGEST_DRAIN = 30.0
"""How long it waits for one that answers."""
Key = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class QueuedEvent:
    """Points of one event, with what tells it from others of its run."""

    key: Key
    points: tuple[Point, ...]


def entry_of(event: Event) -> QueuedEvent | None:
    """The points of `event`; None if it has none."""
    points = points_of(event)
    return (
        QueuedEvent(tuple(map(event.get, ("event", "generation", "step", "time"))), tuple(points)) if points else None
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class MirrorSource:
    """Where a mirror gets what it writes; all of it is called in the mirror's thread."""

    start: Callable[[], WriterProcess]
    """Starts a writer, which is not open yet."""
    run: Callable[[], TrackedRun]
    """The run as its record is now."""
    history: Callable[[], Iterable[Event]]
    """Events of the run that the store has, from the first one on."""
    may_write: Callable[[], bool]
    """Whether this driver still holds the lease of the run."""
    count_failure: Callable[[], None]


class Mirror:
    """Mirror of one run in the tracker `name`; `feed`, `end` and `close` are the driver's, the rest its thread's."""

    def __init__(self, name: str, source: MirrorSource, *, every_seconds: float, needs_all: bool) -> None:
        """Start the thread, and with it the writer.

        Args:
            name: Name of the tracker, for sentences.
            source: Where points, the run and the writer come from.
            every_seconds: Time between two sends.
            needs_all: Whether each writer begins a file, and so needs all points.
        """
        self.sentences: queue.SimpleQueue[str] = queue.SimpleQueue()
        """Texts of events for the record."""
        self._name, self._source, self._every, self._needs_all = name, source, every_seconds, needs_all
        self._state = threading.Condition()
        self._entries: deque[QueuedEvent] = deque()
        self._num_points = 0
        self._has_gap = True
        """The store may have events between the last written one and the first of the queue."""
        self._written: Key | None = None
        """The last event that the tracker took."""
        self._ending: tuple[TrackedRun, Sequence[Point]] | None = None
        self._is_closing = self._is_over = self._is_reported = False
        self._failures, self._due, self._answered = 0, 0.0, time.monotonic()
        self._process: WriterProcess | None = None
        self._thread = threading.Thread(target=self._work, name=f"tracker-{name}", daemon=True)
        self._thread.start()

    def feed(self, entry: QueuedEvent) -> None:
        """Queue the points of an event; of too many the oldest are dropped. Returns at once."""
        with self._state:
            self._entries.append(entry)
            self._num_points += len(entry.points)
            while self._num_points > MOST_POINTS:
                self._num_points -= len(self._entries.popleft().points)
                self._has_gap = True
            if self._is_half_full:
                self._state.notify_all()

    def end(self, ending: tuple[TrackedRun, Sequence[Point]] | None) -> None:
        """Let the thread write what is left; nothing is fed any more. `close` waits for it.

        Args:
            ending: The run, if it has ended, and the points that its record adds; None: it goes on.
        """
        with self._state:
            self._ending, self._is_closing, self._is_over = ending, True, self._failures > 0
            self._answered = time.monotonic()
            self._state.notify_all()

    def close(self) -> None:
        """Wait for what is left; not for a tracker that is silent for DRAIN_SECONDS, or that failed last."""
        began = time.monotonic()
        while self._thread.is_alive() and not self._failures:
            if time.monotonic() > min(self._answered + DRAIN_SECONDS, began + LONGEST_DRAIN):
                break
            self._thread.join(0.05)
        is_complete = not self._thread.is_alive() and not self._failures
        self._is_over = True
        if (process := self._process) is not None:
            process.kill()
        self._thread.join(DRAIN_SECONDS)
        if not is_complete and not self._is_reported:
            self._report("it did not take all in time")

    @property
    def _is_half_full(self) -> bool:
        return self._num_points >= MOST_POINTS // 2

    def _work(self) -> None:
        while self._is_due():
            try:
                self._send()
                self._failures, self._is_reported = 0, False
                self._due = time.monotonic() + self._every
            except WriterFailed as error:
                self._fail(str(error), is_refused=error.is_refused)
            except GanglineError:  # the store is away, and the tracker is not to blame
                self._has_gap, self._due = True, time.monotonic() + self._every
            if self._is_closing:
                break
        process, self._process = self._process, None
        if process is not None:
            try:
                process.close()
            except WriterFailed as error:
                self._failures += not self._is_over and not error.is_refused

    def _is_due(self) -> bool:
        """Wait for the next send; false: the driver has given up."""
        with self._state:
            while not self._is_closing:
                seconds = self._due - time.monotonic()
                if seconds <= 0 or (self._is_half_full and not self._failures):
                    break
                self._state.wait(seconds)
        return not self._is_over

    def _send(self) -> None:
        """Bring the tracker up to the end of the queue, and to that of a run which has ended.

        A driver that loses the lease meanwhile makes no further call.
        """
        if not self._source.may_write():
            return
        if self._process is None:
            self._process = process = self._source.start()
            process.open()
            process.begin(self._source.run())
            self._has_gap, self._written = True, None if self._needs_all else self._written
        process = self._process
        while self._entries or (self._is_closing and self._has_gap):
            if not self._source.may_write():
                return
            if self._has_gap:
                self._catch_up(process)
            self._write_first(process)
        if self._ending is not None and self._source.may_write():
            run, points = self._ending
            for start in range(0, len(points), BATCH):
                process.write(points[start : start + BATCH])
            process.finish(run)

    def _write_first(self, process: WriterProcess) -> None:
        """Write entries of the queue, in one call or a little more, then remove those that are in it still.

        Nothing is written where the queue has lost some since: they come first.
        """
        with self._state:
            batch = [] if self._has_gap else _fitting(iter(self._entries))
        self._write(process, batch)
        taken = set(map(id, batch))
        with self._state:
            while self._entries and id(self._entries[0]) in taken:
                self._num_points -= len(self._entries.popleft().points)

    def _catch_up(self, process: WriterProcess) -> None:
        """Write the stored events after the last written one, up to the first of the queue."""
        with self._state:
            first, self._has_gap = self._entries[0].key if self._entries else None, False
        missing = self._missing(first)
        while batch := _fitting(missing):
            self._write(process, batch)

    def _missing(self, first: Key | None) -> Iterator[QueuedEvent]:
        written = self._written
        is_before = written is not None and any(entry.key == written for entry in self._stored())
        for entry in self._stored():
            if is_before:
                is_before = entry.key != written
            elif entry.key == first:
                return
            else:
                yield entry

    def _stored(self) -> Iterator[QueuedEvent]:
        return (entry for event in self._source.history() if (entry := entry_of(event)) is not None)

    def _write(self, process: WriterProcess, entries: Sequence[QueuedEvent]) -> None:
        points = [point for entry in entries for point in entry.points]
        for start in range(0, len(points), BATCH):
            process.write(points[start : start + BATCH])
            self._answered = time.monotonic()
        if entries:
            self._written = entries[-1].key

    def _fail(self, cause: str, *, is_refused: bool) -> None:
        """Give the writer up for a while; after the third failure in a row, or a refusal, the record says why, once."""
        self._failures += 1
        self._source.count_failure()
        process, self._process = self._process, None
        if process is not None:
            process.end()
        pause = LONGEST_PAUSE if is_refused else self._every * 2 ** (self._failures - 1)
        self._due = time.monotonic() + min(pause, LONGEST_PAUSE)
        if not self._is_reported and (is_refused or self._failures >= FAILURES_BEFORE_EVENT):
            self._report(cause)

    def _report(self, cause: str) -> None:
        self._is_reported = True
        self.sentences.put(f"{self._name} does not have all of this run: {cause}; gangline track push completes it")


def _fitting(entries: Iterator[QueuedEvent]) -> list[QueuedEvent]:
    """The next entries that have BATCH points together, or a little more."""
    batch: list[QueuedEvent] = []
    num_points = 0
    for entry in entries:
        batch.append(entry)
        num_points += len(entry.points)
        if num_points >= BATCH:
            break
    return batch
