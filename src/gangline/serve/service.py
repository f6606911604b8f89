"""What handlers share beside the desk: sessions, limits, watchers of runs, the health of the store."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from urllib.parse import urlsplit

from gangline.errors import IntegrityError, StorageError, UsageError
from gangline.line import runs
from gangline.serve.desk import ServiceDesk
from gangline.serve.health import StoreHealth
from gangline.serve.intake import Room
from gangline.serve.limits import Buckets, Limits, Slots
from gangline.serve.problems import RETRY_SECONDS, Refused
from gangline.serve.quarantine import refuse_in
from gangline.serve.readiness import Readiness
from gangline.serve.records import read_record
from gangline.serve.sessions import Links, Sessions, kept_key
from gangline.serve.stopping import Stopper
from gangline.serve.tallies import Tallies
from gangline.serve.thin import sound
from gangline.serve.types import RunRow, row_of
from gangline.serve.watching import Watchers
from gangline.spec.record import Record
from gangline.storage.protocol import Blob, ObjectStore

RUN = re.compile(r"[a-z][a-z0-9-]{0,19}-[0-9a-f]{8}-[a-z2-7]{6}")
_ORDER = re.compile(r"[0-9]{1,15}")
LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


@dataclass(frozen=True)
class Service:
    """State of one application."""

    desk: ServiceDesk
    limits: Limits = Limits()

    @cached_property
    def port(self) -> int:
        return int(self.desk.site.serve.listen.rsplit(":", 1)[1])

    @cached_property
    def hosts(self) -> frozenset[str]:
        """Names that the service answers to: a page elsewhere may point its own name at our address."""
        public = urlsplit(self.desk.site.serve.public_url or "").hostname
        bound = self.desk.site.serve.listen.rsplit(":", 1)[0].strip("[]")
        return LOOPBACK | {name.lower() for name in (public, bound) if name and name not in {"0.0.0.0", "::"}}  # noqa: S104  # the wildcard is no name

    @cached_property
    def sessions(self) -> Sessions:
        secure = (self.desk.site.serve.public_url or "").startswith("https://")
        key = kept_key(self.desk.home / "session-key")
        return Sessions(key, secure=secure, port=self.port, clock=self.desk.clock)

    @cached_property
    def links(self) -> Links:
        return Links(self.desk.clock)

    @cached_property
    def tallies(self) -> Tallies:
        return Tallies(self.desk.database.runs.counts)

    @cached_property
    def slots(self) -> Slots:
        return Slots(most=self.limits.streams, most_each=self.limits.streams_each)

    @cached_property
    def room(self) -> Room:
        """Memory of bodies."""
        return Room()

    @cached_property
    def guesses(self) -> Buckets:
        """Tokens that nobody has, by address."""
        return Buckets(self.limits.guesses_per_second, self.limits.guesses_burst)

    def refuse_guess(self, peer: str) -> None:
        """Count a token that nobody has.

        Raises:
            Refused: 429, too many came from this address.
        """
        wait = self.guesses.take(peer)
        if wait:
            said = f"too many tokens that nobody has came from this address; again in {wait:.0f} s"
            raise Refused(429, said, {"Retry-After": str(int(wait) + 1)})

    @property
    def health(self) -> StoreHealth:
        return self.desk.health

    @cached_property
    def readiness(self) -> Readiness:
        return Readiness(self.desk.database)

    @cached_property
    def watchers(self) -> Watchers:
        return Watchers(self.desk)

    @cached_property
    def stopper(self) -> Stopper:
        return Stopper(self.desk)

    def close(self) -> None:
        """Let streams go; stops that go on are daemons, and what they leave is found again by its mark."""
        self.watchers.close()

    @contextmanager
    def store(self) -> Iterator[ObjectStore]:
        """The store, for what cannot be answered without it; an outage is remembered.

        Raises:
            Refused: 503, at once while it is known to be away.
            StorageError: It went away just now.
        """
        said = self.health.trouble()
        if said is not None:
            raise Refused(503, f"the store is away: {said}", {"Retry-After": RETRY_SECONDS})
        try:
            yield self.desk.store
        except StorageError as error:
            self.health.failed(error)
            raise

    def project_of_run(self, run: str) -> str | None:
        row = self.find_row(run)
        return row.project if row else None

    def project_of_order(self, order: str) -> str | None:
        found = self.desk.database.orders.get(int(order)) if _ORDER.fullmatch(order) else None
        return found.project if found else None

    def find_row(self, run: str) -> RunRow | None:
        """The run as the index knows it, else as the store does: it may have been born a moment ago."""
        if not RUN.fullmatch(run):
            return None
        row = self.desk.database.runs.get(run)
        if row is None and self.health.trouble() is None:
            row = self._row_in_store(run)
            if row is not None:
                self.desk.database.runs.put([row])
        return row

    def row(self, run: str) -> RunRow:
        """As `find_row`, for a run that the gate has let through."""
        row = self.find_row(run)
        if row is None:
            raise Refused(404, "the run is gone")
        return row

    def record_blob(self, run: str) -> tuple[Blob, Record]:
        """The record as it is in the store, byte for byte, and read.

        Raises:
            Refused: The store is away, the record was deleted, or what lies there is not the record of its key.
        """
        prefix = self.row(run).prefix
        with self.store() as store:
            try:
                found = read_record(store, prefix)
            except IntegrityError as error:
                refuse_in(self.desk.quarantine, store, f"{prefix}/record.json", error)
                raise Refused(409, f"its record cannot be read: {error}") from error
        if found is None:
            raise Refused(404, "its record is gone from the store")
        return found

    def record(self, run: str) -> Record:
        return self.record_blob(run)[1]

    def _row_in_store(self, run: str) -> RunRow | None:
        with self.store() as store:
            try:
                return sound(row_of(runs.find_run(store, run)))
            except (UsageError, IntegrityError):  # the index finds it, and tells of it
                return None
