"""A service that only takes deliveries in: the router over a real database and the real adapters."""

from dataclasses import replace

from fastapi import FastAPI
from tests.serve.deliveries import ENVIRON, SITE

from gangline.line.forge.open import open_forges
from gangline.serve.accounts import Accounts
from gangline.serve.database.open import open_database
from gangline.serve.desk import ServiceDesk
from gangline.serve.hooks import router
from gangline.serve.intake import Room
from gangline.serve.telemetry import Telemetry
from gangline.spec.site import StoreTable
from gangline.storage.local import FolderStore


def desk_at(folder, *, database=None, site=SITE, environ=ENVIRON, forges=None):
    """A desk whose state lies below `folder`."""
    site = replace(site, store=StoreTable(url=f"file:{folder}/store"))
    database = database or open_database(str(folder / "gangline.db"))
    (folder / "store").mkdir(exist_ok=True)
    return ServiceDesk(
        site=site, site_file=folder / "site.toml", environ=environ, home=folder, repo=folder,
        store=FolderStore(folder / "store"), database=database, accounts=Accounts(database.tokens),
        forges=open_forges(site, environ) if forges is None else forges, telemetry=Telemetry.of(site),
    )  # fmt: skip


def hooks_app(desk):
    app = FastAPI()
    app.include_router(router(desk, Room()))
    return app
