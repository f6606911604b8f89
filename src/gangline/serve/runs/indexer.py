"""The indexer: keeps the index of runs equal to the store; open runs every two seconds, all records now and then.

A run may start and end between two passes over open runs; the next full pass finds it. Full passes take at most a
hundredth of the time: every minute while they are short.
"""

import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future

import structlog

from gangline.errors import StorageError
from gangline.line.record.store import RecordStore
from gangline.line.run.lease import read_lease
from gangline.serve.context.quarantine import Quarantine
from gangline.serve.context.service_context import StoreHealth
from gangline.serve.context.telemetry import Telemetry
from gangline.serve.database.runs import RunIndex
from gangline.serve.database.types import RunFilter, RunRow
from gangline.serve.runs.record_reader import RowReader
from gangline.spec.record import Record, run_prefix
from gangline.storage.objects.protocol import ObjectStore


def is_lease_overdue(store: ObjectStore, record: Record, *, now: float) -> bool:
    """Whether the driver of an open run disappeared: it neither renewed nor released its lease.

    Raises:
        StorageError: The store is away.
        IntegrityError: The lease is none.
    """
    lease = read_lease(store, record.prefix)
    return lease is not None and bool(lease.holder) and lease.expires < now


OPEN_SECONDS = 2.0
FULL_SECONDS = (60.0, 3600.0)
"""Least and most between two full passes."""
FULL_SHARE = 0.01
"""Share of the time that full passes may take."""
RETRY_SECONDS = 15.0
"""Pause after a full pass that the store did not let end."""
BATCH = 200
FINALS = 50
log = structlog.get_logger()


class Indexer:
    """Two threads that keep an index equal to a store.

    Args:
        on_open: Called with every open record in each pass, for cancellations and approvals made elsewhere.
    """

    def __init__(
        self,
        store: ObjectStore,
        index: RunIndex,
        *,
        health: StoreHealth,
        telemetry: Telemetry | None = None,
        on_open: Callable[[Record], None] = lambda _: None,
        quarantine: Quarantine | None = None,
    ) -> None:
        self._store, self._index = store, index
        self._health, self._telemetry, self._on_open = health, telemetry, on_open
        self.quarantine = Quarantine() if quarantine is None else quarantine
        self._rows = RowReader(store, self.quarantine)
        self._open: dict[str, str] = {}
        """Run to prefix of those that were open at the last look."""
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._urgent: list[str] = []
        self._lock = threading.Lock()
        self.built: Future[int] = Future()
        """Records of the first full pass, once it is over."""

    def start(self) -> None:
        for work in (self._poll_open_runs, self._poll_records):
            threading.Thread(target=work, name=f"index {work.__name__.strip('_')}", daemon=True).start()

    def close(self) -> None:
        self._stop.set()
        self._wake.set()

    def refresh(self, project: str, commit: str, run: str) -> None:
        """Read open runs now, because one was created or has ended; thread-safe."""
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
        runs = self._rows.open_runs()
        ended = [prefix for run, prefix in self._open.items() if run not in runs]
        reported = [prefix for prefix in urgent if prefix.rsplit("/", 1)[1] not in runs]
        rows = [self._rows.of_run(prefix, on_read=self._report_end) for prefix in dict.fromkeys([*ended, *reported])]
        rows += [self._rows.of_record(record, on_read=self._on_open) for record in runs.values()]
        self._index.put([row for row in rows if row is not None])
        self._open = {run: record.prefix for run, record in runs.items()}
        self._report_open(runs.values())

    def full_pass(self) -> int:
        """Every record that changed since the last full pass, page by page; how many there are.

        Raises:
            StorageError: The store is away; what was read stays.
        """
        count = 0
        rows: list[RunRow] = []
        missing = self.quarantine.prefixes("runs/")
        on_end = self._report_end if self.built.done() else None
        for entry in self._rows.entries():
            count += 1
            missing.discard(entry.key.rpartition("/")[0])
            row = self._rows.of_entry(entry, on_end=on_end)
            if row is not None:
                rows.append(row)
            if len(rows) >= BATCH:
                self._index.put(rows)
                rows = []
            if self._stop.is_set():
                break
        else:
            self.quarantine.forget(lambda key: key.rpartition("/")[0] in missing)
        self._index.put(rows)
        return count

    def rebuild_finals(self) -> None:
        """Pass to the telemetry the newest runs of every project that ended before this service started."""
        if self._telemetry is None:
            return
        for project in sorted({project for project, _ in self._index.counts(None)}):
            newest = self._index.search(RunFilter(project=project, limit=FINALS))
            for row in reversed([row for row in newest if row.state == "ended"]):
                records = RecordStore(self._store, row.prefix)
                with self._rows.refusing(records.key):
                    record = records.read()
                    self._telemetry.rebuild([record] if record is not None else [])

    def _report_open(self, found: Iterable[Record]) -> None:
        if self._telemetry is None:
            return
        counts: dict[str, int] = {}
        overdue, now = 0, time.time()
        for record in found:
            counts[record.run.project] = counts.get(record.run.project, 0) + 1
            with self._rows.refusing(f"{record.prefix}/lease.json"):
                overdue += is_lease_overdue(self._store, record, now=now)
                self.quarantine.accept(f"{record.prefix}/lease.json")
        self._telemetry.runs_active(counts)
        self._telemetry.leases_overdue(overdue)
        self._telemetry.records_refused(len(self.quarantine))

    def _report_end(self, record: Record) -> None:
        if self._telemetry is not None and record.run.state == "ended":
            self._telemetry.run_ended(record)

    def _poll_open_runs(self) -> None:
        while not self._stop.is_set():
            self._run_pass(self.open_pass, "index_open")
            self._wake.wait(OPEN_SECONDS)
            self._wake.clear()

    def _poll_records(self) -> None:
        while not self._stop.is_set():
            began = time.monotonic()
            done = self._run_pass(self._full, "index_full")
            took = time.monotonic() - began
            log.debug("index_full", seconds=round(took, 3), whole=done)
            self._stop.wait(pause_after(took) if done else RETRY_SECONDS)

    def _full(self) -> None:
        count = self.full_pass()
        if not self.built.done():
            self.rebuild_finals()
            self.built.set_result(count)
            log.info("index_built", records=count)

    def _run_pass(self, work: Callable[[], None], name: str) -> bool:
        """Call it; log an unavailable store or a bug and try again: these threads never end by themselves."""
        try:
            work()
        except StorageError as error:
            if self._health.problem() is None:
                log.warning("store_away", cause=str(error))
            self._health.failed(error)
            return False
        except Exception:
            log.exception("index_broke", work=name)
            return False
        if self._health.problem() is not None:
            log.warning("store_back")
        self._health.answered()
        return True


def pause_after(seconds: float) -> float:
    """Pause until the next full pass, if the last one took `seconds`."""
    least, most = FULL_SECONDS
    return min(most, max(least, seconds / FULL_SHARE))
