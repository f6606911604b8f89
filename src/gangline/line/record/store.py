"""Writes of a record: put-if-absent creates it, compare-and-set changes it, a token fences it, a seal protects it.

If the answer to a write is lost, the record is read back: each write carries a random nonce. A driver writes with the
token of its lease; once a younger token is in the record, the older driver's write is refused, whatever its lease
says.
"""

import random
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from gangline.errors import CapacityError, IntegrityError, StorageError
from gangline.line.record import states
from gangline.line.record.size import fit
from gangline.signing.record_seal import PLACEHOLDER, Sealer, sealed_part
from gangline.spec.record import Driver, Record, run_prefix
from gangline.storage.objects.protocol import Blob, ObjectStore, get_bounded

TRIES = 8
MOST_READ_BYTES = 1 << 20
"""Four times what is ever written: a larger object is no record."""
Change = Callable[[Record], Record]
"""Pure: it may be applied several times, each time to what was just read."""


def read_record(store: ObjectStore, prefix: str) -> Record | None:
    """The record at `prefix`; None where there is none. Raises as `RecordStore.read`."""
    return RecordStore(store, prefix).read()


@dataclass(frozen=True, slots=True)
class RecordStore:
    """Record of one run in a store."""

    store: ObjectStore
    prefix: str
    sealer: Sealer | None = None
    """None: for readers, and for who asks a run to stop."""

    @staticmethod
    def of(store: ObjectStore, record: Record, sealer: Sealer | None = None) -> "RecordStore":
        return RecordStore(store, run_prefix(record.run.project, record.commit.sha, record.run.id), sealer)

    @property
    def key(self) -> str:
        return f"{self.prefix}/record.json"

    def read(self) -> Record | None:
        """The record as it stands; None before its birth.

        Raises:
            IntegrityError: The object is too large, is no record, or is the record of another run: the key decides.
        """
        blob = self.read_blob()
        return None if blob is None else self.parse(blob.data)

    def read_sealed(self) -> Record:
        """The record, which exists, once its seal holds; for decisions that rest on it.

        Raises:
            IntegrityError: As `read`, or its seal does not hold.
            StorageError: It is gone.
        """
        assert self.sealer is not None, "who decides has the site's keys"
        record = self.read()
        if record is None:
            raise StorageError(f"{self.store.url}: wanted {self.key}, found nothing; was the run deleted?")
        return self.sealer.check(record)

    def read_blob(self) -> Blob | None:
        """The record's bytes and etag; raises IntegrityError where they are too many to be one."""
        return get_bounded(self.store, self.key, most_bytes=MOST_READ_BYTES)

    def parse(self, data: bytes) -> Record:
        """The record in `data`; raises IntegrityError as `read` does."""
        record = Record.from_json(data)
        if record.prefix != self.prefix:
            raise IntegrityError(f"{self.key} calls itself {record.prefix[:200]}: a record is the run of its key")
        return record

    def create(self, record: Record) -> Record:
        """Write the first version, unless another was first: then its record is returned."""
        fresh = fit(replace(record, seq=1, nonce=secrets.token_hex(8), seal=PLACEHOLDER))
        fresh = self.sealer.seal(fresh) if self.sealer else replace(fresh, seal=None)
        if self.store.put_if_absent(self.key, fresh.to_json()) is not None:
            return fresh
        standing = self.read()
        if standing is None:
            raise StorageError(f"{self.store.url}: {self.key} was there and is gone; does somebody clear this store?")
        return standing

    def change(self, change: Change, *, driver: Driver | None = None) -> Record:
        """Apply `change` to the record and write it, again on what another wrote meanwhile.

        Args:
            change: Pure; returning the record it was given writes nothing.
            driver: Who writes as the run's driver. None: a bystander (cancel, drill, promotion).

        Raises:
            CapacityError: A younger driver has taken the run over; follow it.
            IntegrityError: The change is one that no run may make, or wants a key; or the seal does not hold.
            StorageError: The store failed, or eight writers in turn were faster.
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
        raise StorageError(f"{self.store.url}: {self.key} moved {TRIES} times while one change was written; try again")

    def _sealed(self, before: Record, after: Record) -> Record:
        """`after` with the seal that it needs: a new one where it says something else that is relied on."""
        if sealed_part(before) == sealed_part(after):
            return replace(after, seal=before.seal)
        if self.sealer is None:
            raise IntegrityError(f"{after.run.id}: this change needs the site's key, which its driver has")
        self.sealer.check(before)
        return self.sealer.seal(after)

    def _write(self, record: Record, etag: str) -> bool:
        try:
            return self.store.compare_and_set(self.key, record.to_json(), etag) is not None
        except StorageError:
            standing = self.read()
            if standing is not None and standing.nonce == record.nonce:
                return True
            raise


def _prepare(before: Record, change: Change, driver: Driver | None) -> Record:
    _fence(before, driver)
    after = change(before)
    if driver is not None and driver != before.run.driver:
        after = replace(after, run=replace(after.run, driver=driver))
    if after == before:
        return before
    states.check(before, after)
    return fit(replace(after, seq=before.seq + 1, nonce=secrets.token_hex(8), seal=PLACEHOLDER))


def _fence(standing: Record, driver: Driver | None) -> None:
    if driver is None:
        return
    young = standing.run.driver
    if young.token > driver.token:
        raise CapacityError(
            f"run {standing.run.id} was taken over by {young.holder} (token {young.token}, ours is {driver.token});"
            f" watch it: gangline follow {standing.run.id}"
        )
    if young.token == driver.token and young.holder != driver.holder:
        raise IntegrityError(f"two drivers hold token {driver.token} of {standing.run.id}: {young.holder} came first")
