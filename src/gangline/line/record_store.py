"""How a record is written: born by put-if-absent, changed by compare-and-set of pure functions, fenced by a token.

An answer that was lost is settled by reading back: each write carries a random nonce. A driver writes with the token of
its lease; once a younger token stands in the record, the older driver is refused at the write itself, whatever it
believes about its lease. Which changes are legal is known to `states`, what is thinned to fit to `record_size`.
"""

import random
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from gangline.errors import CapacityError, IntegrityError, StorageError
from gangline.line import states
from gangline.line.record_size import fit
from gangline.spec.record import Driver, Record, run_prefix
from gangline.storage.protocol import ObjectStore

TRIES = 8
Change = Callable[[Record], Record]
"""Pure: it may be applied several times, each time to what was just read."""


@dataclass(frozen=True, slots=True)
class RecordStore:
    """Record of one run in a store."""

    store: ObjectStore
    prefix: str

    @staticmethod
    def of(store: ObjectStore, record: Record) -> "RecordStore":
        return RecordStore(store, run_prefix(record.run.project, record.commit.sha, record.run.id))

    @property
    def key(self) -> str:
        return f"{self.prefix}/record.json"

    def read(self) -> Record | None:
        """The record as it stands; None before its birth."""
        blob = self.store.get(self.key)
        return None if blob is None else Record.from_json(blob.data)

    def birth(self, record: Record) -> Record:
        """Write the first version, unless another was first: then its record is returned."""
        fresh = replace(record, seq=1, nonce=secrets.token_hex(8))
        if self.store.put_if_absent(self.key, fit(fresh).to_json()) is not None:
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
            IntegrityError: The change is one that no run may make.
            StorageError: The store failed, or eight writers in turn were faster.
        """
        for attempt in range(TRIES):
            blob = self.store.get(self.key)
            if blob is None:
                raise StorageError(f"{self.store.url}: wanted {self.key}, found nothing; was the run deleted?")
            before = Record.from_json(blob.data)
            after = _prepare(before, change, driver)
            if after is before or self._write(after, blob.etag):
                return after
            time.sleep(random.uniform(0, 0.01 * 2**attempt))  # noqa: S311  # jitter, no secret
        raise StorageError(f"{self.store.url}: {self.key} moved {TRIES} times while one change was written; try again")

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
    return fit(replace(after, seq=before.seq + 1, nonce=secrets.token_hex(8)))


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
