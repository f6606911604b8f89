"""Reads records of runs from the store: whole records for handlers, rows for the index.

The key says which run a record belongs to. A record that cannot be read goes to the quarantine and affects no other.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from gangline.errors import IntegrityError, StorageError
from gangline.line.record import runs
from gangline.line.record.store import RecordStore
from gangline.serve.context.quarantine import Quarantine, refuse_record
from gangline.serve.database.types import RunRow
from gangline.serve.runs.index_row import checked_row, row_from_bytes, row_of
from gangline.spec import identity
from gangline.spec.record import Record
from gangline.storage.objects.protocol import Blob, Entry, ObjectStore, list_all


def read_record(store: ObjectStore, prefix: str) -> tuple[Blob, Record] | None:
    """The bytes of the record of the run at `prefix`, and what they say; None where there is none.

    Raises:
        IntegrityError: The object is too large, is no record, or names another run or the gang of another run.
    """
    records = RecordStore(store, prefix)
    blob = records.read_blob()
    if blob is None:
        return None
    record = records.parse(blob.data)
    if record.gang is not None and not identity.is_gang_of(record.gang.name, record.run.id):
        raise IntegrityError(f"its gang calls itself {record.gang.name[:80]!r}, which is none of {record.run.id}")
    return blob, record


class _Seen(NamedTuple):
    """A record when it was read last."""

    modified: float
    size_bytes: int
    has_ended: bool


class RowReader:
    """Reads rows; all methods raise StorageError where the store is away, and nothing else."""

    def __init__(self, store: ObjectStore, quarantine: Quarantine) -> None:
        self.store, self.quarantine = store, quarantine
        self._seen: dict[str, _Seen] = {}
        """Record that the row of each key was made from."""

    def open_runs(self) -> dict[str, Record]:
        """Records of the open runs, by id."""
        markers: set[str] = set()

        def refuse(key: str, error: IntegrityError) -> None:
            markers.add(key)
            refuse_record(self.quarantine, self.store, key, error)

        found = {record.run.id: record for record in runs.open_runs(self.store, on_refused=refuse)}
        self.quarantine.forget(lambda key: key.startswith("open/") and key not in markers)
        return found

    def entries(self) -> Iterator[Entry]:
        """Where a record may lie, page by page."""
        return (entry for entry in list_all(self.store, "runs/") if _prefix_of(entry.key) is not None)

    def of_entry(self, entry: Entry, *, on_end: Callable[[Record], None] | None = None) -> RunRow | None:
        """Row of a record that is new or changed since it was asked for last; None of any other.

        `on_end` gets a record that was not known to have ended.
        """
        before = self._seen.get(entry.key)
        if before is not None and (before.modified, before.size_bytes) == (entry.modified, entry.size_bytes):
            return None
        records = RecordStore(self.store, _prefix_of(entry.key) or "")
        row: RunRow | None = None
        with self.refusing(entry.key):
            blob = records.read_blob()
            if blob is not None and entry.key in self.quarantine:  # more of it may be damaged than a row shows
                records.parse(blob.data)
            row = None if blob is None else row_from_bytes(records.prefix, blob.data)
            has_ended = row is not None and row.state == "ended"
            if blob is not None and on_end is not None and has_ended and not (before and before.has_ended):
                on_end(records.parse(blob.data))
            self.quarantine.accept(entry.key)
        self._seen[entry.key] = _Seen(entry.modified, entry.size_bytes, row is not None and row.state == "ended")
        return row

    def of_run(self, prefix: str, *, on_read: Callable[[Record], None]) -> RunRow | None:
        """Row of the run at `prefix`, whose record is passed to `on_read`; None where there is none to be read."""
        records = RecordStore(self.store, prefix)
        record: Record | None = None
        with self.refusing(records.key):
            record = records.read()
        return None if record is None else self.of_record(record, on_read=on_read)

    def of_record(self, record: Record, *, on_read: Callable[[Record], None]) -> RunRow | None:
        """Row of a record that was read, and passed to `on_read`."""
        key = f"{record.prefix}/record.json"
        row: RunRow | None = None
        with self.refusing(key):
            row = checked_row(row_of(record))
            on_read(record)
            self.quarantine.accept(key)
        return row

    @contextmanager
    def refusing(self, key: str) -> Iterator[None]:
        """Quarantine `key` for any error of the block except StorageError."""
        try:
            yield
        except StorageError:
            raise
        except Exception as error:  # a bug that one record finds hinders no other
            refuse_record(self.quarantine, self.store, key, error)


def _prefix_of(key: str) -> str | None:
    """Prefix of the run whose record lies at `key`; None where no run could lie there."""
    prefix = key.removesuffix("/record.json")
    return prefix if prefix != key and identity.is_run_prefix(prefix) else None
