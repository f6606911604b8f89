"""The service context: site, store, database, forges, accounts, telemetry, for every part of the service.

The store's URL in `site` is absolute, so that child processes write to the same store from any folder; `site_file` is
the same site for a child process.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from time import time
from typing import TYPE_CHECKING

from gangline.forge.protocol import Forge
from gangline.serve.context.accounts import Accounts
from gangline.serve.context.health import StoreHealth
from gangline.serve.context.quarantine import Quarantine
from gangline.serve.database.open import Database
from gangline.spec.config.site import Site
from gangline.storage.objects.protocol import ObjectStore

if TYPE_CHECKING:
    from gangline.serve.context.telemetry import Telemetry


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
