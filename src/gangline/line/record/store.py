"""Storage of a record: put-if-absent creates it, compare-and-set changes it, a token fences it, a seal protects it.

If the answer to a write is lost, the record is read back: each write carries a random nonce. A driver writes with the
token of its lease; once the record has a newer token, writes of the older driver are refused, whatever its lease says.
A record has at most 256 KiB: what is stored elsewhere too is dropped first, never the verdict or the gates.
"""

import random
import secrets
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from gangline.errors import CapacityError, IntegrityError, StorageError
from gangline.line.record import states
from gangline.signing.record_seal import PLACEHOLDER, Sealer, sealed_part
from gangline.spec.measurements import RankRow
from gangline.spec.record import Driver, Record, run_prefix
from gangline.storage.objects.protocol import Blob, ObjectStore, get_bounded

TRIES = 8
MOST_READ_BYTES = 1 << 20
"""Four times the size limit of a record: a larger object is not one."""
Change = Callable[[Record], Record]
"""Pure: it may be applied several times, each time to the record just read."""

MAX_BYTES = 256 * 1024
MAX_RANKS = 64


def read_record(store: ObjectStore, prefix: str) -> Record | None:
    """The record at `prefix`; None where there is none. Raises as `RecordStore.read`."""
    return RecordStore(store, prefix).read()


@dataclass(frozen=True, slots=True)
class RecordStore:
    """Record of one run in a store."""

    store: ObjectStore
    prefix: str
    sealer: Sealer | None = None
    """None for readers, and for a cancellation request, which needs no key."""

    @staticmethod
    def of(store: ObjectStore, record: Record, sealer: Sealer | None = None) -> "RecordStore":
        """The store of an existing record; without `sealer` it cannot change sealed fields."""
        return RecordStore(store, run_prefix(record.run.project, record.commit.sha, record.run.id), sealer)

    @property
    def key(self) -> str:
        return f"{self.prefix}/record.json"

    def read(self) -> Record | None:
        """The stored record; None before it is created.

        Raises:
            IntegrityError: The object is too large, is no record, or is the record of another run: the key decides.
        """
        blob = self.read_blob()
        return None if blob is None else self.parse(blob.data)

    def read_sealed(self) -> Record:
        """The stored record with a verified seal, for decisions that depend on it.

        Raises:
            IntegrityError: As `read`, or its seal is invalid.
            StorageError: There is none.
        """
        assert self.sealer is not None, "verifying a seal takes the site's keys"
        record = self.read()
        if record is None:
            raise StorageError(f"{self.store.url}: wanted {self.key}, found nothing; was the run deleted?")
        return self.sealer.check(record)

    def read_blob(self) -> Blob | None:
        """The record's bytes and etag; raises IntegrityError if it is too large."""
        return get_bounded(self.store, self.key, most_bytes=MOST_READ_BYTES)

    def parse(self, data: bytes) -> Record:
        """The record in `data`; raises IntegrityError as `read` does."""
        record = Record.from_json(data)
        if record.prefix != self.prefix:
            raise IntegrityError(f"{self.key}: wanted the record of this run, found that of {record.prefix[:200]}")
        return record

    def create(self, record: Record) -> Record:
        """Write the first version; if another driver was first, return its record."""
        new = fit(replace(record, seq=1, nonce=secrets.token_hex(8), seal=PLACEHOLDER))
        new = self.sealer.seal(new) if self.sealer else replace(new, seal=None)
        if self.store.put_if_absent(self.key, new.to_json()) is not None:
            return new
        existing = self.read()
        if existing is None:
            raise StorageError(f"{self.store.url}: {self.key} disappeared; does another process delete objects here?")
        return existing

    def change(self, change: Change, *, driver: Driver | None = None) -> Record:
        """Apply `change` to the record and write it; repeat if another process wrote meanwhile.

        Args:
            change: Pure; returning its argument writes nothing.
            driver: The run's driver that writes. None: not the driver (cancel, drill, promotion).

        Raises:
            CapacityError: A newer driver has taken the run over.
            IntegrityError: The change is not allowed or needs a key, or the seal is invalid.
            StorageError: The store failed, or other writers were faster eight times.
        """
        for attempt in range(TRIES):
            blob = self.read_blob()
            if blob is None:
                raise StorageError(f"{self.store.url}: wanted {self.key}, found nothing; was the run deleted?")
            before = self.parse(blob.data)
            after = _prepare(before, change, driver)
            if after is before:
                return before
            after = self._sealed(before, after)
            if self._write(after, blob.etag):
                return after
            time.sleep(random.uniform(0, 0.01 * 2**attempt))  # noqa: S311  # jitter, no secret
        raise StorageError(f"{self.store.url}: {self.key}: {TRIES} writes lost to other writers; try again")

    def _sealed(self, before: Record, after: Record) -> Record:
        """`after` with its seal: the old one if no sealed field changed, else a new one."""
        if sealed_part(before) == sealed_part(after):
            return replace(after, seal=before.seal)
        if self.sealer is None:
            raise IntegrityError(f"{after.run.id}: this change needs the site's key, which only its driver has")
        self.sealer.check(before)
        return self.sealer.seal(after)

    def _write(self, record: Record, etag: str) -> bool:
        try:
            return self.store.compare_and_set(self.key, record.to_json(), etag) is not None
        except StorageError:
            stored = self.read()
            if stored is not None and stored.nonce == record.nonce:
                return True
            raise


def fit(record: Record) -> Record:
    """The record itself if it fits, else with fewer events, ranks, candidates, paths and seeds, in that order.

    Raises:
        IntegrityError: It is still too large: a value of the line holds what belongs into a file.
    """
    size = 0
    for each in _thinned(record):
        if (size := len(each.to_json())) <= MAX_BYTES:
            return each
    raise IntegrityError(
        f"record of {record.run.id}: wanted at most {MAX_BYTES} bytes, found {size} after thinning;"
        " keep large values in files of the repository, not in line.toml"
    )


def thin_ranks(rows: tuple[RankRow, ...], limit: int = MAX_RANKS) -> tuple[RankRow, ...]:
    """The slowest half, the fastest eighth and an even sample of the rest: at most `limit` rows, in rank order."""
    if len(rows) <= limit:
        return rows
    by_time = sorted(rows, key=lambda row: row.step_seconds or 0.0, reverse=True)
    slow, fast = limit // 2, limit // 8
    rest = by_time[slow : len(by_time) - fast]
    num_sampled = limit - slow - fast
    sample = [rest[i * len(rest) // num_sampled] for i in range(num_sampled)]
    chosen = (*by_time[:slow], *sample, *by_time[len(by_time) - fast :])
    return tuple(sorted(chosen, key=lambda row: row.rank))


def _prepare(before: Record, change: Change, driver: Driver | None) -> Record:
    _fence(before, driver)
    after = change(before)
    if driver is not None and driver != before.run.driver:
        after = replace(after, run=replace(after.run, driver=driver))
    if after == before:
        return before
    states.check(before, after)
    return fit(replace(after, seq=before.seq + 1, nonce=secrets.token_hex(8), seal=PLACEHOLDER))


def _fence(record: Record, driver: Driver | None) -> None:
    if driver is None:
        return
    current = record.run.driver
    if current.token > driver.token:
        raise CapacityError(
            f"run {record.run.id} was taken over by {current.holder} (token {current.token}, ours is {driver.token});"
            f" watch it: gangline follow {record.run.id}"
        )
    if current.token == driver.token and current.holder != driver.holder:
        raise IntegrityError(f"two drivers hold token {driver.token} of {record.run.id}: {current.holder} came first")


def _thinned(record: Record) -> Iterator[Record]:
    """The record itself, then with less and less of what is stored elsewhere, too."""
    yield record
    yield (record := replace(record, events=record.events[-50:]))
    yield (record := replace(record, ranks=thin_ranks(record.ranks, 32)))
    if record.plan is not None:
        yield (record := replace(record, plan=replace(record.plan, candidates=record.plan.candidates[:8])))
    yield (record := replace(record, commit=replace(record.commit, changed=record.commit.changed[:20])))
    yield (record := replace(record, ranks=thin_ranks(record.ranks, 16)))
    yield (record := replace(record, events=record.events[-20:]))
    yield replace(record, curve=replace(record.curve, seed_points={}))
