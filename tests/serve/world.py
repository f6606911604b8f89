"""A service of two tenants over a folder and an SQLite file, with records of each, for tests of what it answers."""

import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path

import httpx
from fastapi import FastAPI
from tests.report import records

from gangline.forge.factory import open_forges
from gangline.line.record.runs import mark_open
from gangline.serve.app import create_app
from gangline.serve.context.accounts import Accounts, digest_of, new_token
from gangline.serve.context.service_context import ServiceContext
from gangline.serve.context.telemetry import Telemetry
from gangline.serve.database.open import open_database
from gangline.serve.database.types import Principal
from gangline.serve.runs.index_row import row_of
from gangline.serve.server import address_of, bind, create_server
from gangline.serve.web.rate_limits import RequestLimits
from gangline.signing.record_seal import Sealer
from gangline.spec import identity
from gangline.spec.config.site import ForgeTable, LimitsTable, ServeTable, Site, StoreTable
from gangline.spec.record import Artifact, CommitInfo, Record
from gangline.storage.folder.store import FolderStore

TENANTS = ("alpha", "beta")
ROLES = ("reader", "runner", "maintainer")
SECRETS = {"HOOK_SECRET": "canary-of-the-hook"}
PLENTY = RequestLimits(
    requests_per_second=100_000, burst=100_000, failed_logins_per_second=100_000, failed_logins_burst=100_000
)


@dataclass
class World:
    context: ServiceContext
    tokens: dict[tuple[str, str], str]
    """By project (or *) and role."""

    url: str = ""
    app: FastAPI | None = None

    def client(self, who: tuple[str, str] | None = ("*", "admin"), **options) -> httpx.Client:
        """Of the server that `serving` started, which speaks plain HTTP: reading certificates costs 30 ms a client."""
        headers = {"Authorization": f"Bearer {self.tokens[who]}"} if who else {}
        return httpx.Client(base_url=self.url, headers=headers, timeout=30, trust_env=False, verify=False, **options)

    @contextmanager
    def serving(self, *, limits: RequestLimits = PLENTY):
        """This world behind a real server, in a thread."""
        self.app = create_app(self.context, limits=limits)
        with served(self.app, proxies=self.context.site.serve.proxies) as self.url:
            yield self

    def run(self, project: str, verdict: str = "passed") -> str:
        return run_id(project, verdict)


@contextmanager
def served(app, *, proxies=(), listen="127.0.0.1:0"):
    """URL of `app` behind the server that ships."""
    server = create_server(app, proxies=proxies)
    with bind(listen) as bound:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]}, daemon=True)
        thread.start()
        while not server.started:
            time.sleep(0.01)
        try:
            yield f"http://{address_of(bound)}"
        finally:
            server.should_exit = True
            server.force_exit = True
            thread.join(10)


def run_id(project: str, verdict: str) -> str:
    made = records.passed() if verdict == "passed" else records.bare()
    return identity.run_id(project, commit_of(made, project, verdict), line=made.inputs.line, attempt=1)


def commit_of(made: Record, project: str, verdict: str) -> CommitInfo:
    trust = "fork" if verdict == "fork" else "own"
    return replace(
        made.commit, sha=sha(project, verdict), trust=trust, protected=trust == "own", base=None, patch=None
    )  # fmt: skip


def sha(project: str, verdict: str) -> str:
    return sha256(f"{project} {verdict}".encode()).hexdigest()[:40]


@contextmanager
def world(tmp_path: Path):
    """The tenants `alpha` and `beta`, each with a run that passed, an open one, and an open one of a fork."""
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    (tmp_path / "alpha").mkdir()
    store = FolderStore(tmp_path / "store")
    site = Site(
        store=StoreTable(url=store.url),
        limits=LimitsTable(active_runs=2),
        serve=ServeTable(home=str(home), repositories={"alpha": str(tmp_path / "alpha")}),
        forge={
            "ours": ForgeTable(
                kind="gitea",
                url="http://127.0.0.1:1",
                projects={"team/beta": "beta"},
                hook_secret="secret:env:HOOK_SECRET",
            )
        },
    )
    database = open_database(str(home / "serve.db"))
    context = ServiceContext(
        site=site,
        site_file=tmp_path / "site.toml",
        environ=SECRETS | {"XDG_CONFIG_HOME": str(tmp_path / "config")},
        home=home,
        repo=tmp_path,
        store=store,
        database=database,
        accounts=Accounts(database.tokens),
        forges=open_forges(site, SECRETS),
        telemetry=Telemetry.of(site),
    )
    for project in TENANTS:
        fill(context, project)
    try:
        yield World(context, tokens_of(context))
    finally:
        database.close()


def fill(context: ServiceContext, project: str) -> None:
    for verdict in ("passed", "open", "fork"):
        record = Sealer.of(context.site, context.environ).seal(record_of(context, project, verdict))
        context.store.put(f"{record.prefix}/record.json", record.to_json())
        if record.run.state == "open":
            mark_open(context.store, record)
        context.database.runs.put([row_of(record)])


def record_of(context: ServiceContext, project: str, verdict: str) -> Record:
    made = records.passed() if verdict == "passed" else records.bare()
    run = replace(made.run, id=run_id(project, verdict), project=project)
    commit = commit_of(made, project, verdict)
    gang = replace(made.gang, name=run.id) if made.gang else None
    made = replace(made, run=run, commit=commit, artifacts=(), gang=gang)
    if verdict != "passed":
        return made
    return replace(made, artifacts=(put(context, made, "report", b"<h1>report</h1>", "text/html"),
                                    put(context, made, "metrics", METRICS, "application/jsonl")))  # fmt: skip


METRICS = b"".join(b'{"seed": 1, "step": %d, "loss": %.3f}\n' % (step, 10 / step) for step in range(1, 101))


def put(context: ServiceContext, record: Record, kind: str, data: bytes, media_type: str) -> Artifact:
    name = {"report": "report.html", "metrics": "metrics.jsonl"}[kind]
    key = f"{record.gang_prefix if kind == 'metrics' else record.prefix}/{name}"
    context.store.put(key, data)
    return Artifact(
        kind=kind, key=key, media_type=media_type, size_bytes=len(data),
        sha256=sha256(data).hexdigest(),
    )  # fmt: skip


def tokens_of(context: ServiceContext) -> dict[tuple[str, str], str]:
    found = {}
    for project, role in [("*", "admin"), *((project, role) for project in TENANTS for role in ROLES)]:
        token = found[project, role] = new_token()
        principal = Principal(name=f"{role} of {project}", roles={project: role})
        context.database.tokens.add(digest=digest_of(token), principal=principal, expires=None, now=0.0)
    return found
