"""Keeps the index of runs as the store has them: open ones every two seconds, all records now and then.

A run may be born and end between two looks at open ones; the next full pass finds it. Those are as frequent as a
hundredth of the time allows: every minute over a small store, hourly over one of 100,000 runs. The store is the truth.
While it is away the index stays as it was, and whoever answers from it says so.
"""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import NamedTuple

import structlog

from gangline.errors import IntegrityError, StorageError
from gangline.line import runs
from gangline.line.record_store import RecordStore
from gangline.serve.health import StoreHealth
from gangline.serve.protocol import RunIndex
from gangline.serve.sampling import tell_overdue
from gangline.serve.telemetry import Telemetry
from gangline.serve.thin import thin_row
from gangline.serve.types import RunFilter, RunRow, row_of
from gangline.spec.record import Record, run_prefix
from gangline.storage.protocol import Blob, Entry, ObjectStore, list_all

OPEN_SECONDS = 2.0
FULL_SECONDS = (60.0, 3600.0)
"""Least and most between two full passes."""
FULL_SHARE = 0.01
"""Of the time may go into them."""
AGAIN_SECONDS = 15.0
"""After a full pass that the store did not let end."""
BATCH = 200
FINALS = 50
log = structlog.get_logger()


class _Seen(NamedTuple):
    """A record when it was read last."""

    modified: float
    size_bytes: int
    has_ended: bool


class Indexer:
    """Two threads between a store and an index.

    Args:
        attend: Told of every open record at each look: marks and approvals that came by other ways are seen to.
    """

    def __init__(
        self,
        store: ObjectStore,
        index: RunIndex,
        *,
        health: StoreHealth,
        telemetry: Telemetry | None = None,
        attend: Callable[[Record], None] = lambda _: None,
    ) -> None:
        self._store, self._index = store, index
        self._health, self._telemetry, self._attend = health, telemetry, attend
        self._seen: dict[str, _Seen] = {}
        """By key: the record that its row was made from."""
        self._open: dict[str, str] = {}
        """Run to prefix of those that were open at the last look."""
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._urgent: list[str] = []
        self._lock = threading.Lock()
        self.built: Future[int] = Future()
        """Records of the first full pass, once it is over."""

    def start(self) -> None:
        for work in (self._look_often, self._look_at_all):
            threading.Thread(target=work, name=f"index {work.__name__.strip('_')}", daemon=True).start()

    def close(self) -> None:
        self._stop.set()
        self._wake.set()

    def look_at(self, project: str, commit: str, run: str) -> None:
        """A run was born, or has ended: look now. From any thread."""
        with self._lock:
            self._urgent.append(run_prefix(project, commit, run))
        self._wake.set()

    def open_pass(self) -> None:
        """Every open run once more, and those that ended since the last look.

        Raises:
            StorageError: The store is away.
        """
        with self._lock:
            urgent, self._urgent = self._urgent, []
        found = {record.run.id: record for record in runs.open_runs(self._store)}
        ended = [prefix for run, prefix in self._open.items() if run not in found]
        asked = [prefix for prefix in urgent if prefix.rsplit("/", 1)[1] not in found]
        for prefix in dict.fromkeys([*ended, *asked]):
            record = RecordStore(self._store, prefix).read()
            if record is not None:
                self._index.put([row_of(record)])
                self._tell_end(record)
        self._index.put([row_of(record) for record in found.values()])
        self._open = {run: record.prefix for run, record in found.items()}
        self._tell_open(list(found.values()))

    def full_pass(self) -> int:
        """Every record that changed since the last full pass, page by page; how many there are.

        Raises:
            StorageError: The store is away; what was read stays.
        """
        count, rows = 0, []
        for entry in self._records():
            count += 1
            row = self._row(entry)
            if row is not None:
                rows.append(row)
            if len(rows) >= BATCH:
                self._index.put(rows)
                rows = []
            if self._stop.is_set():
                break
        self._index.put(rows)
        return count

    def rebuild_finals(self) -> None:
        """Tell the telemetry of the newest runs of every project that ended before this service began."""
        if self._telemetry is None:
            return
        for project in sorted({project for project, _ in self._index.counts(None)}):
            newest = self._index.search(RunFilter(project=project, limit=FINALS))
            found = (RecordStore(self._store, row.prefix).read() for row in reversed(newest) if row.state == "ended")
            self._telemetry.rebuild(record for record in found if record is not None)

    def _records(self) -> Iterator[Entry]:
        return (
            entry
            for entry in list_all(self._store, "runs/")
            if entry.key.endswith("/record.json") and entry.key.count("/") == 4
        )

    def _row(self, entry: Entry) -> RunRow | None:
        """Row of a record that is new or changed; an end that no look at open runs saw is told."""
        before = self._seen.get(entry.key)
        if before is not None and (before.modified, before.size_bytes) == (entry.modified, entry.size_bytes):
            return None
        blob = self._store.get(entry.key)
        row = _row_in(blob, entry.key)
        self._seen[entry.key] = _Seen(entry.modified, entry.size_bytes, row is not None and row.state == "ended")
        ended_since = self._seen[entry.key].has_ended and not (before and before.has_ended)
        if blob is not None and ended_since and self.built.done():
            self._tell_end(Record.from_json(blob.data))
        return row

    def _tell_open(self, found: list[Record]) -> None:
        if self._telemetry is not None:
            counts: dict[str, int] = {}
            for record in found:
                counts[record.run.project] = counts.get(record.run.project, 0) + 1
            self._telemetry.runs_active(counts)
            tell_overdue(self._telemetry, self._store, found, now=time.time())
        for record in found:
            self._attend(record)

    def _tell_end(self, record: Record) -> None:
        if self._telemetry is not None and record.run.state == "ended":
            self._telemetry.run_ended(record)

    def _look_often(self) -> None:
        while not self._stop.is_set():
            self._guarded(self.open_pass, "index_open")
            self._wake.wait(OPEN_SECONDS)
            self._wake.clear()

    def _look_at_all(self) -> None:
        while not self._stop.is_set():
            began = time.monotonic()
            done = self._guarded(self._full, "index_full")
            took = time.monotonic() - began
            log.debug("index_full", seconds=round(took, 3), whole=done)
            self._stop.wait(pause_after(took) if done else AGAIN_SECONDS)

    def _full(self) -> None:
        count = self.full_pass()
        if not self.built.done():
            self.rebuild_finals()
            self.built.set_result(count)
            log.info("index_built", records=count)

    def _guarded(self, work: Callable[[], None], name: str) -> bool:
        """Do it; a store that is away, or a bug, is said and tried again: these threads never end by themselves."""
        try:
            work()
        except StorageError as error:
            if self._health.trouble() is None:
                log.warning("store_away", cause=str(error))
            self._health.failed(error)
            return False
        except Exception:
            log.exception("index_broke", work=name)
            return False
        if self._health.trouble() is not None:
            log.warning("store_back")
        self._health.answered()
        return True


def pause_after(seconds: float) -> float:
    """Until the next full pass, where the last one took `seconds`."""
    least, most = FULL_SECONDS
    return min(most, max(least, seconds / FULL_SHARE))


def _row_in(blob: Blob | None, key: str) -> RunRow | None:
    """None for what is gone, or is no record: this is said."""
    try:
        return None if blob is None else thin_row(blob.data)
    except IntegrityError as error:
        log.warning("record_refused", key=key, cause=str(error))
        return None
