"""The state that handlers share: context, sessions, limits, watchers of runs, run counts, health of the store."""

import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from time import monotonic
from urllib.parse import urlsplit

from gangline.errors import IntegrityError, StorageError, UsageError
from gangline.line.record import runs
from gangline.serve.context.quarantine import refuse_record
from gangline.serve.context.service_context import DatabaseReadiness, ServiceContext
from gangline.serve.database.types import RunRow
from gangline.serve.runs.index_row import checked_row, row_of
from gangline.serve.runs.record_reader import read_record
from gangline.serve.runs.run_stopper import RunStopper
from gangline.serve.runs.searches import SearchReader
from gangline.serve.runs.watchers import RunWatchers
from gangline.serve.web.body_limits import BodyMemory
from gangline.serve.web.rate_limits import RequestLimits, StreamSlots, TokenBuckets
from gangline.serve.web.responses import RETRY_SECONDS, RequestRefused
from gangline.serve.web.sessions import LoginLinks, Sessions, load_or_create_key
from gangline.spec.record import Record
from gangline.storage.objects.protocol import Blob, ObjectStore

COUNT_SECONDS = 2.0
"""Longest age of a count: the index reads open runs no more often."""
MAX_CACHED = 256
"""Sets of projects that are remembered, one for each kind of reader."""
Counts = Mapping[tuple[str, str], int]


class RunCounts:
    """Runs by (project, verdict), counted at most once in `SECONDS` for the same projects; thread-safe."""

    def __init__(self, count: Callable[[Sequence[str] | None], Counts], clock: Callable[[], float] = monotonic) -> None:
        self._count, self._clock = count, clock
        self._cached: dict[tuple[str, ...] | None, tuple[float, Counts]] = {}
        self._lock = threading.Lock()

    def of(self, projects: tuple[str, ...] | None) -> Counts:
        """Counts of the runs of `projects`; None: of all projects."""
        with self._lock:
            cached = self._cached.get(projects)
            if cached is not None and self._clock() - cached[0] < COUNT_SECONDS:
                return cached[1]
        found = self._count(projects)
        with self._lock:
            if len(self._cached) >= MAX_CACHED:
                self._cached.clear()
            self._cached[projects] = (self._clock(), found)
        return found


RUN = re.compile(r"[a-z][a-z0-9-]{0,19}-[0-9a-f]{8}-[a-z2-7]{6}")
_ORDER = re.compile(r"[0-9]{1,15}")
LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


class Service:
    """State of one application."""

    def __init__(self, context: ServiceContext, limits: RequestLimits | None = None) -> None:
        self.context, self.limits = context, limits or RequestLimits()
        self.links = LoginLinks(context.clock)
        self.searches = SearchReader(context.store)
        self.run_counts = RunCounts(context.database.runs.counts)
        self.readiness = DatabaseReadiness(context.database)
        self.watchers = RunWatchers(context)
        """Pollers of the runs that clients follow."""
        self.stopper = RunStopper(context)
        self.body_memory = BodyMemory()
        self.slots = StreamSlots(limit=self.limits.streams, limit_each=self.limits.streams_each)
        """Slots for event streams and followed logs."""
        self.failed_logins = TokenBuckets(self.limits.failed_logins_per_second, self.limits.failed_logins_burst)
        """Unknown tokens, by address."""

    @cached_property
    def hosts(self) -> frozenset[str]:
        """Names that the service answers to: a page elsewhere may point its own name at our address."""
        public = urlsplit(self.context.site.serve.public_url or "").hostname
        bound = self.context.site.serve.listen.rsplit(":", 1)[0].strip("[]")
        return LOOPBACK | {name.lower() for name in (public, bound) if name and name not in {"0.0.0.0", "::"}}  # noqa: S104  # the wildcard is no name

    @cached_property
    def sessions(self) -> Sessions:
        """Browser sessions, signed with the key in the service's home."""
        serve = self.context.site.serve
        return Sessions(
            load_or_create_key(self.context.home / "session-key"),
            secure=(serve.public_url or "").startswith("https://"),
            port=int(serve.listen.rsplit(":", 1)[1]),
            clock=self.context.clock,
        )

    def count_failed_login(self, peer: str) -> None:
        """Count an unknown token.

        Raises:
            RequestRefused: 429, too many came from this address.
        """
        wait = self.failed_logins.take(peer)
        if wait:
            detail = f"too many unknown tokens from this address; retry in {wait:.0f} s"
            raise RequestRefused(429, detail, {"Retry-After": str(int(wait) + 1)})

    def close(self) -> None:
        """Close streams. A later service finishes cancellations that are still running, by the mark in the record."""
        self.watchers.close()

    @contextmanager
    def store(self) -> Iterator[ObjectStore]:
        """The store, for requests that need it; an outage is remembered.

        Raises:
            RequestRefused: 503, at once while it is known to be away.
            StorageError: It went away just now.
        """
        detail = self.context.health.problem()
        if detail is not None:
            raise RequestRefused(503, f"the store is away: {detail}", {"Retry-After": RETRY_SECONDS})
        try:
            yield self.context.store
        except StorageError as error:
            self.context.health.failed(error)
            raise

    def project_of_run(self, run: str) -> str | None:
        """Project of a run; None where the index has no such run."""
        row = self.find_row(run)
        return row.project if row else None

    def project_of_order(self, order: str) -> str | None:
        """Project of an order, by its number as text; None where there is no such order."""
        found = self.context.database.orders.get(int(order)) if _ORDER.fullmatch(order) else None
        return found.project if found else None

    def find_row(self, run: str) -> RunRow | None:
        """The run as the index knows it, else as the store does: it may have been made a moment ago."""
        if not RUN.fullmatch(run):
            return None
        row = self.context.database.runs.get(run)
        if row is None and self.context.health.problem() is None:
            row = self._row_in_store(run)
            if row is not None:
                self.context.database.runs.put([row])
        return row

    def row(self, run: str) -> RunRow:
        """Row of a run that passed the access check."""
        row = self.find_row(run)
        if row is None:
            raise RequestRefused(404, "the run was deleted")
        return row

    def record_blob(self, run: str) -> tuple[Blob, Record]:
        """The record as it is in the store, byte for byte, and read.

        Raises:
            RequestRefused: The store is away, the record was deleted, or what lies there is not the record of its key.
        """
        prefix = self.row(run).prefix
        with self.store() as store:
            try:
                record = read_record(store, prefix)
            except IntegrityError as error:
                refuse_record(self.context.quarantine, store, f"{prefix}/record.json", error)
                raise RequestRefused(409, f"its record cannot be read: {error}") from error
        if record is None:
            raise RequestRefused(404, "its record is gone from the store")
        return record

    def record(self, run: str) -> Record:
        return self.record_blob(run)[1]

    def _row_in_store(self, run: str) -> RunRow | None:
        with self.store() as store:
            try:
                return checked_row(row_of(runs.find_run(store, run)))
            except (UsageError, IntegrityError):  # the index finds it, and tells of it
                return None
