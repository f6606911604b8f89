"""A run's record as handlers read it: its key says whose it is, and the gang that it names is one of that run."""

from gangline.errors import IntegrityError
from gangline.line import identity
from gangline.line.record_store import RecordStore
from gangline.spec.record import Record
from gangline.storage.protocol import Blob, ObjectStore


def read_record(store: ObjectStore, prefix: str) -> tuple[Blob, Record] | None:
    """The bytes of the record of the run at `prefix`, and what they say; None where there is none.

    Raises:
        IntegrityError: What lies there is too large, is no record, or speaks of another run or of another's gang.
    """
    records = RecordStore(store, prefix)
    blob = records.read_blob()
    if blob is None:
        return None
    record = records.parse(blob.data)
    if record.gang is not None and not identity.is_gang_of(record.gang.name, record.run.id):
        raise IntegrityError(f"its gang calls itself {record.gang.name[:80]!r}, which is none of {record.run.id}")
    return blob, record
