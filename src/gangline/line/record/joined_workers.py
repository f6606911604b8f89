"""Workers that joined a run from other sites: each has a number, and a document next to the record with its owner.

A worker that joins takes the lowest free number, by put-if-absent; numbers up to `workers` are the
run's own.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from gangline.spec.codec import Document
from gangline.spec.launchers import RanksAt
from gangline.spec.parameter_server import MOST_WORKERS
from gangline.spec.record import Record
from gangline.storage.objects.protocol import ObjectStore, get_bounded
from gangline.units import now

_MOST_BYTES = 4096


@dataclass(frozen=True, kw_only=True, slots=True)
class JoinedWorker(Document):
    """A worker that the run did not start."""

    worker: int
    host: str
    """Machine of the driver that follows its gang."""
    target: RanksAt
    """Launcher of its gang."""
    joined: str
    left: str | None = None
    """When it left or ended; None: it has done neither, or its driver died first."""


def joined_prefix(record: Record, worker: int) -> str:
    """Folder of a joined worker in the store, where gangs cannot write; the lease of its driver is there, too."""
    return f"{record.prefix}/joined/{worker:02d}"


def read_joined(store: ObjectStore, record: Record, worker: int) -> JoinedWorker | None:
    """The worker of that number; None: it is free.

    Raises:
        IntegrityError: The document is too large, or none.
    """
    blob = get_bounded(store, _key(record, worker), most_bytes=_MOST_BYTES)
    return None if blob is None else JoinedWorker.from_json(blob.data)


def free_numbers(record: Record) -> Iterator[int]:
    """Numbers that workers which join may take, the lowest first."""
    own = record.inputs.values.get("train.parameter_server.workers") or 0
    return iter(range(own + 1, MOST_WORKERS + 1))


def put_joined(store: ObjectStore, record: Record, worker: JoinedWorker) -> bool:
    """Take a number; False: another one has it."""
    return store.put_if_absent(_key(record, worker.worker), worker.to_json()) is not None


def put_left(store: ObjectStore, record: Record, worker: JoinedWorker) -> None:
    """Write that a worker has left."""
    store.put(_key(record, worker.worker), replace(worker, left=now()).to_json())


def _key(record: Record, worker: int) -> str:
    return f"{joined_prefix(record, worker)}/worker.json"
