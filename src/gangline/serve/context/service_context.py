"""The service context: site, store and database with their health, forges, accounts, telemetry, for every part of it.

The store's URL in `site` is absolute, so that child processes write to the same store from any folder; `site_file` is
the same site for a child process. Ready means that a delivery would be stored; a probe costs a disk write, so its
result holds for a few seconds.
"""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic, time
from typing import TYPE_CHECKING

import structlog

from gangline.errors import StorageError
from gangline.forge.protocol import Forge
from gangline.serve.context.accounts import Accounts
from gangline.serve.context.quarantine import Quarantine
from gangline.serve.database.open import Database
from gangline.serve.database.types import DatabaseProblem
from gangline.spec.config.site import Site
from gangline.storage.objects.protocol import ObjectStore

if TYPE_CHECKING:
    from gangline.serve.context.telemetry import Telemetry


FRESH_SECONDS = 5.0
PROBE_TIMEOUT_SECONDS = 3.0
"""Time after which requests fail because the disk or the database does not answer."""
log = structlog.get_logger()


class StoreHealth:
    """One sentence, or none; safe from any thread."""

    def __init__(self) -> None:
        self._problem: str | None = None

    def failed(self, error: StorageError) -> None:
        """Record that a request to the store failed."""
        self._problem = str(error)

    def answered(self) -> None:
        """Record that the store answered a request."""
        self._problem = None

    def problem(self) -> str | None:
        """One sentence while the store is unavailable."""
        return self._problem


class DatabaseReadiness:
    """A cached write probe of the database, one at a time; thread-safe."""

    def __init__(self, database: Database, *, clock: Callable[[], float] = monotonic) -> None:
        self._database, self._clock = database, clock
        self._found: DatabaseProblem | None = None
        self._fresh_until = float("-inf")
        self._lock = threading.Lock()

    def problem(self) -> DatabaseProblem | None:
        """What was wrong at most FRESH_SECONDS ago."""
        if not self._lock.acquire(timeout=PROBE_TIMEOUT_SECONDS):
            return DatabaseProblem("does not answer", "a write to the database has been waiting for long")
        try:
            if self._fresh_until <= self._clock():
                database_problem = self._database.check()
                if database_problem is not None and database_problem != self._found:
                    log.warning("not_ready", cause=database_problem.detail)
                elif database_problem is None and self._found is not None:
                    log.warning("ready_again")
                self._found, self._fresh_until = database_problem, self._clock() + FRESH_SECONDS
            return self._found
        finally:
            self._lock.release()


@dataclass(frozen=True, kw_only=True)
class ServiceContext:
    """One service; everything in it is safe from any thread."""

    site: Site
    site_file: Path
    """File that `gangline run --site` gets."""
    environ: Mapping[str, str]
    home: Path
    """Clones, logs of drivers, keys, the SQLite file; closed to others."""
    repo: Path
    """Folder that the service was started for; its `.gangline` holds the gangs of runs without a clone."""
    store: ObjectStore
    database: Database
    accounts: Accounts
    forges: Mapping[str, Forge] = field(default_factory=dict)
    telemetry: "Telemetry | None" = None
    health: StoreHealth = field(default_factory=StoreHealth)
    quarantine: Quarantine = field(default_factory=Quarantine)
    """Records that could not be read."""
    clock: Callable[[], float] = time
    """Seconds since the epoch."""
    run_folder: Callable[[str, str], Path | None] = lambda _project, _commit: None
    """Where the run of a project's commit was driven on this machine: the folder whose `.gangline` has its gangs."""
    run_changed: Callable[[str, str, str], None] = lambda _project, _commit, _run: None
    """Called by a driver when a run was made or has ended: the index looks at it at once."""

    def project_names(self) -> frozenset[str]:
        """Projects that this site can start: of its forges, and repositories of this machine."""
        of_forges = {project for forge in self.site.forge.values() for project in forge.projects.values()}
        return frozenset(of_forges | set(self.site.serve.repositories))
