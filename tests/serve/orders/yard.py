"""A service over one repository, whose drivers are quick; with a forge that answers from that repository."""

import os
import sys
import time
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler
from pathlib import Path
from unittest.mock import patch

from tests.line import repositories
from tests.line.repositories import commit, git, make_repository
from tests.loopback import listening
from tests.serve.hook_service import service_context

from gangline.errors import StorageError
from gangline.forge.protocol import RefHead
from gangline.line.record.runs import list_runs
from gangline.serve.context.home import site_text
from gangline.serve.database.types import Order
from gangline.serve.orders.workers import OrderService
from gangline.serve.runs.index_row import row_of
from gangline.signing.record_seal import Sealer
from gangline.spec.config.site import ForgeTable, ServeTable, Site

DRIVER = (sys.executable, str(Path(__file__).with_name("driver.py")))
ALL = ("queued", "driving", "parked", "done", "dropped", "quarantined")
SECONDS = 60.0


class RepositoryForge:
    """A forge over a folder: branches are its heads, pull requests refs/pull/N/head."""

    name = "ours"

    def __init__(self, repo, url):
        self.repo, self.url = repo, url
        self.forks = set()
        self.away = False
        self.statuses, self.comments = [], []

    def head(self, repository, ref):
        return dict(self.heads(repository)).get(ref)

    def heads(self, repository):
        if self.away:
            raise StorageError("the forge is away")
        git(self.repo, "update-server-info")
        rows = (
            line.split() for line in git(self.repo, "for-each-ref", "--format=%(refname) %(objectname)").splitlines()
        )
        return [(ref, self._head(ref, name)) for ref, name in rows if ref.startswith(("refs/heads/", "refs/pull/"))]

    def _head(self, ref, name):
        if ref.startswith("refs/heads/"):
            return RefHead(commit=name, branch=ref.removeprefix("refs/heads/"))
        number = int(ref.split("/")[2])
        return RefHead(
            commit=name, pull_request=number, is_fork=number in self.forks, branch=f"pull-{number}", target="main"
        )

    def clone_url(self, repository):
        return self.url

    def pull_ref(self, number):
        return f"refs/pull/{number}/head"

    def set_status(self, repository, commit, status):
        self.statuses.append((commit, status))

    def changes(self, repository, pull_request):
        names = git(self.repo, "diff", "--name-only", "main", f"refs/pull/{pull_request}/head")
        return names.split()


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@contextmanager
def _served(folder):
    """URL of a repository as plain files, which git reads over http."""
    with listening(partial(_Quiet, directory=str(folder))) as url:
        yield f"{url}/"


class Yard:
    """What tests do: push, order, look."""

    def __init__(self, folder, *, workers=2, forge=False, database=None):
        self.folder = folder
        self.repo = make_repository(folder / "repo")
        self._leaving = ExitStack()
        url = self._leaving.enter_context(_served(self.repo / ".git")) if forge else ""
        self.forge = RepositoryForge(self.repo, url) if forge else None
        serve = ServeTable(workers=workers, repositories={} if forge else {"cheap": str(self.repo)})
        tables = {"ours": ForgeTable(kind="gitea", url="http://127.0.0.1:1", projects={"team/cheap": "cheap"})}
        site = Site(serve=serve, forge=tables if forge else {})
        self.starts_file = folder / "starts"
        own = {"STARTS": str(self.starts_file), "XDG_CONFIG_HOME": str(folder / "config")}
        environ = {**os.environ, **own, "PYTHONPATH": str(Path.cwd())}
        (folder / "home").mkdir()
        forges = {"ours": self.forge} if forge else {}
        context = service_context(folder / "home", database=database, site=site, environ=environ, forges=forges)
        (folder / "site.toml").write_text(site_text(context.site))
        self.context = replace(context, site_file=folder / "site.toml", run_changed=self._born)

    @property
    def sealer(self):
        return Sealer.of(self.context.site, self.context.environ)

    @contextmanager
    def working(self, *, sweep=False):
        """A service that takes orders up."""
        service = OrderService(self.context, program=DRIVER)
        service.workers.start()
        if sweep:
            service.sweeper.start()
        try:
            yield service
        finally:
            service.close()

    def push(self, word="pass", branch="main", files=None):
        """A commit of today on a branch; how its driver ends."""
        if git(self.repo, "branch", "--show-current") != branch:
            known = git(self.repo, "branch", "--list", branch)
            git(self.repo, "switch", "--quiet", *([] if known else ["--create"]), branch)
        with patch.dict(repositories.WHO, {"GIT_COMMITTER_DATE": f"@{time.time():.0f} +0000"}):
            return commit(self.repo, files or {"n.txt": str(time.monotonic_ns())}, f"change {word}")

    def order(self, branch="main", **fields):
        place = {"forge": "ours", "repository": "team/cheap"} if self.forge else {}
        order = Order(**({"project": "cheap", "ref": f"refs/heads/{branch}", "branch": branch} | place | fields))
        return self.context.database.orders.add(order, now=time.time())

    def wait(self, order, *states):
        """The order once it is in one of `states` (done, where none is named)."""
        deadline = time.monotonic() + SECONDS
        while True:
            found = self.context.database.orders.get(order.id)
            if found.state in (states or ("done",)):
                return found
            assert time.monotonic() < deadline, found
            assert found.state not in {"quarantined", "dropped"}, found
            time.sleep(0.02)

    def until(self, holds):
        deadline = time.monotonic() + SECONDS
        while not holds():
            assert time.monotonic() < deadline
            time.sleep(0.02)

    def orders(self, *states):
        return self.context.database.orders.list(states=states or ALL, projects=None, limit=1000)

    def records(self):
        return list(list_runs(self.context.store))

    def starts(self):
        """(run, process id) of every driver that held a lease."""
        text = self.starts_file.read_text() if self.starts_file.exists() else ""
        return [(run, int(pid)) for run, pid in (line.split() for line in text.splitlines())]

    def close(self):
        self.context.database.close()
        self._leaving.close()

    def _born(self, project, commit, run):
        """What the index does."""
        rows = [row_of(each) for each in list_runs(self.context.store, project=project, commit=commit)]
        self.context.database.runs.put(rows)
