"""A service that only takes deliveries in: the router over a real database and the real adapters."""

from dataclasses import replace

from fastapi import FastAPI
from tests.serve.deliveries import ENVIRON, SITE

from gangline.forge.factory import open_forges
from gangline.serve.context.accounts import Accounts
from gangline.serve.context.service_context import ServiceContext
from gangline.serve.context.telemetry import Telemetry
from gangline.serve.database.open import open_database
from gangline.serve.web.body_limits import BodyMemory
from gangline.serve.webhooks import router
from gangline.spec.config.site import StoreTable
from gangline.storage.folder.store import FolderStore


def service_context(folder, *, database=None, site=SITE, environ=ENVIRON, forges=None):
    """A context whose state lies below `folder`."""
    site = replace(site, store=StoreTable(url=f"file:{folder}/store"))
    database = database or open_database(str(folder / "gangline.db"))
    (folder / "store").mkdir(exist_ok=True)
    return ServiceContext(
        site=site, site_file=folder / "site.toml", environ=environ, home=folder, repo=folder,
        store=FolderStore(folder / "store"), database=database, accounts=Accounts(database.tokens),
        forges=open_forges(site, environ) if forges is None else forges, telemetry=Telemetry.of(site),
    )  # fmt: skip


def hooks_app(context):
    app = FastAPI()
    app.include_router(router(context, BodyMemory()))
    return app
