"""Assembly of a service from its site: context, application, indexer, workers; start and stop, drivers left running."""

import threading
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import structlog
from fastapi import FastAPI

from gangline.errors import ConfigError, StorageError
from gangline.forge.factory import open_forges
from gangline.line.request import trust
from gangline.serve.api.service import Service
from gangline.serve.app import create_app
from gangline.serve.context.accounts import Accounts, KnownToken, read_token_file
from gangline.serve.context.home import ServiceHome, effective_site
from gangline.serve.context.metered_store import MeteredStore
from gangline.serve.context.quarantine import Quarantine
from gangline.serve.context.service_context import ServiceContext, StoreHealth
from gangline.serve.context.telemetry import CallOutcome, Telemetry
from gangline.serve.database.open import Database, open_database
from gangline.serve.orders.workers import OrderService, run_folder
from gangline.serve.runs.indexer import Indexer
from gangline.spec.config.grammar import LOOPBACK
from gangline.spec.config.secrets import resolve_secret
from gangline.spec.config.site import Site
from gangline.spec.record import Record
from gangline.storage import site_paths
from gangline.storage.objects.protocol import ObjectStore
from gangline.storage.open import open_store
from gangline.storage.probe import probe

STORE_SECONDS = 10.0
"""Time limit of one call with all its tries: the longest that a request waits for a store."""
log = structlog.get_logger()


@dataclass(frozen=True, kw_only=True)
class RunningService:
    """What `open_service` made."""

    context: ServiceContext
    app: FastAPI
    indexer: Indexer
    orders: OrderService
    local: KnownToken | None
    """The administrator of this machine, where no tokens are configured."""
    closing: ExitStack

    @property
    def service(self) -> Service:
        """What the handlers of the app share."""
        found: Service = self.app.state.service
        return found

    def start(self) -> None:
        """Start the indexer and the workers."""
        self.indexer.start()
        self.orders.start()
        threading.Thread(target=_try_store, args=(self.context,), name="probe", daemon=True).start()

    def close(self) -> None:
        """Stop the indexer and the workers; drivers of runs keep running."""
        self.closing.close()


def open_service(repo: Path, *, site: Site, environ: Mapping[str, str]) -> RunningService:
    """Everything that a service needs, opened; nothing is started yet.

    Raises:
        ConfigError: A wrong token file, database, store or forge; or an address beyond loopback without tokens.
        CapacityError: Another service uses this home.
        IntegrityError: The file of the database is damaged.
        StorageError: The home or the database cannot be written.
    """
    with ExitStack() as opening:
        site = effective_site(repo, site)
        home = ServiceHome.of(repo, site, environ)
        opening.enter_context(home.lock())
        database = open_database(site.serve.database or str(home.database))
        opening.callback(database.close)
        tokens, local = _tokens(site, home, environ, database)
        health, quarantine, telemetry = StoreHealth(), Quarantine(), Telemetry.of(site)
        store = MeteredStore(_open_store(repo, site, environ), telemetry)
        open_runs = _OpenRunHandler(database)
        indexer = Indexer(
            store, database.runs, health=health, telemetry=telemetry, on_open=open_runs.on_open, quarantine=quarantine
        )
        context = ServiceContext(
            site=site,
            site_file=home.write_site(site),
            environ=environ,
            home=home.folder,
            repo=repo,
            store=store,
            database=database,
            accounts=Accounts(database.tokens, tokens),
            forges=open_forges(site, environ, counted=partial(_count_forge, telemetry)),
            telemetry=telemetry,
            health=health,
            quarantine=quarantine,
            run_changed=indexer.refresh,
            run_folder=partial(run_folder, home.folder),
        )
        app = create_app(context)
        open_runs.service = app.state.service
        opening.callback(app.state.service.close)
        opening.callback(indexer.close)
        orders = OrderService(context)
        opening.callback(orders.close)
        return RunningService(
            context=context, app=app, indexer=indexer, orders=orders, local=local, closing=opening.pop_all()
        )


class _OpenRunHandler:
    """Handles open runs that were cancelled or approved without this service."""

    def __init__(self, database: Database) -> None:
        self.service: Service | None = None
        self._database = database
        self._woken: set[str] = set()

    def on_open(self, record: Record) -> None:
        run = record.run
        if run.cancel_requested and self.service is not None:
            self.service.stopper.finish(record)
        elif record.commit.trust == "fork" and not trust.awaits_approval(record) and run.id not in self._woken:
            self._woken.add(run.id)
            self._database.orders.unpark(run.id, now=self.service.context.clock() if self.service else 0.0)


def _tokens(
    site: Site, home: ServiceHome, environ: Mapping[str, str], database: Database
) -> tuple[tuple[KnownToken, ...], KnownToken | None]:
    """Tokens outside the database: those of the site's file, and the local one."""
    is_local = site.serve.listen.rsplit(":", 1)[0] in LOOPBACK
    if site.serve.tokens is not None:
        text = resolve_secret(site.serve.tokens, environ)
        return read_token_file(text, source=f"serve.tokens ({site.serve.tokens})"), None
    if is_local:
        local = home.local_token()
        return (local,), local
    if not database.tokens.list():
        raise ConfigError(
            f"serve.listen {site.serve.listen} can be reached by others: wanted tokens, found none;"
            " set serve.tokens, or make one first: gangline token add NAME --role PROJECT=ROLE"
        )
    return (), None


def _open_store(repo: Path, site: Site, environ: Mapping[str, str]) -> ObjectStore:
    return open_store(
        site_paths.store_url(repo, site),
        endpoint=site.store.endpoint,
        region=site.store.region,
        credentials=site_paths.store_credentials(site, environ),
        deadline_seconds=STORE_SECONDS,
        connect_seconds=STORE_SECONDS,
    )


def _count_forge(telemetry: Telemetry, forge: str, outcome: str) -> None:
    known: dict[str, CallOutcome] = {"ok": "ok", "limited": "refused", "refused": "refused"}
    telemetry.forge_request(forge, known.get(outcome, "failed"))


def _try_store(context: ServiceContext) -> None:
    """Probe conditional writes once; the index reports an unavailable store."""
    try:
        conditional_writes = probe(context.store).conditional_writes
    except StorageError as error:
        log.warning("store_not_tried", cause=str(error))
        return
    if context.telemetry is not None:
        context.telemetry.conditional_writes(ok=conditional_writes)
    if not conditional_writes:
        log.warning("store_not_conditional", store=context.store.url)
