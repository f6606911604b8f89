"""A real Gitea for tests: a child on a free loopback port, as a user that is nobody, with everything in one folder."""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from secrets import token_hex

import pytest
from tests.contracts.storage.servers import tool
from tests.ports import free_port
from tests.tools.__main__ import TOOLS

_START_SECONDS = 60
_NOBODY = 65534
ADMIN = "keeper"
_SETTINGS = """\
APP_NAME = forge
RUN_MODE = prod
WORK_PATH = {folder}
[server]
HTTP_ADDR = 127.0.0.1
HTTP_PORT = {port}
ROOT_URL = {url}/
STATIC_ROOT_PATH = {static}
APP_DATA_PATH = {folder}/data
DISABLE_SSH = true
OFFLINE_MODE = true
[database]
DB_TYPE = sqlite3
PATH = {folder}/gitea.db
[repository]
ROOT = {folder}/repositories
[security]
INSTALL_LOCK = true
SECRET_KEY = {key}
PASSWORD_HASH_ALGO = pbkdf2$1000$50
[webhook]
ALLOWED_HOST_LIST = loopback
[service]
DISABLE_REGISTRATION = true
[indexer]
ISSUE_INDEXER_TYPE = db
[cron]
ENABLED = false
[actions]
ENABLED = false
[log]
MODE = file
ROOT_PATH = {folder}/log
LEVEL = warn
"""


@dataclass
class GiteaServer:
    """`start`, `stop`, and `start` again on the same port and folder; `ADMIN` may do everything."""

    folder: Path
    port: int = field(default_factory=free_port)
    password: str = field(default_factory=lambda: token_hex(12))
    process: subprocess.Popen[bytes] | None = None
    people: set[str] = field(default_factory=set)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def set_up(self) -> "GiteaServer":
        """Write its settings, make its database and its first user, start it."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.folder.chmod(0o755)
        text = _SETTINGS.format(
            folder=self.folder, port=self.port, url=self.url, static=_static_files(), key=token_hex(16)
        )
        (self.folder / "app.ini").write_text(text)
        if os.geteuid() == 0:
            shutil.chown(self.folder, _NOBODY, _NOBODY)
            shutil.chown(self.folder / "app.ini", _NOBODY, _NOBODY)
        self._once("migrate")
        who = ("--username", ADMIN, "--password", self.password, "--email", "keeper@example.org")
        self._once("admin", "user", "create", *who, "--admin", "--must-change-password=false")
        return self.start()

    def start(self) -> "GiteaServer":
        with (self.folder / "out").open("ab") as out:
            self.process = subprocess.Popen(
                [*self._command(), "web"], env=self._environment(), stdout=out, stderr=out, cwd=self.folder
            )
        self._await_answer()
        return self

    def stop(self) -> None:
        """Gone at once, as a machine that lost its power."""
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
            self.process = None

    def call(self, method, path, body=None, *, user=ADMIN, password=None):
        """JSON of one request; (status, None) comes as urllib's HTTPError."""
        login = b64encode(f"{user}:{password or self.password}".encode()).decode()
        request = urllib.request.Request(
            f"{self.url}/api/v1{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Basic {login}", "Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=20) as answer:
            data = answer.read()
        return json.loads(data) if data else None

    def add_user(self, name: str) -> None:
        """With the admin's password; one who is there already stays."""
        if name in self.people:
            return
        self.people.add(name)
        body = {"username": name, "email": f"{name}@example.org", "password": self.password}
        self.call("POST", "/admin/users", body | {"must_change_password": False})

    def token(self, user: str, *scopes: str) -> str:
        """A new one."""
        body = {"name": token_hex(4), "scopes": list(scopes)}
        return self.call("POST", f"/users/{user}/tokens", body, user=user)["sha1"]

    def open_pull(self, repository: str, head: str, *, user: str) -> int:
        """Number of a new pull request; Gitea learns of a branch a moment after its push."""
        body = {"head": head, "base": "main", "title": "wider"}
        for _ in range(100):
            with contextlib.suppress(urllib.error.HTTPError):
                return int(self.call("POST", f"/repos/{repository}/pulls", body, user=user)["number"])
            time.sleep(0.1)
        raise RuntimeError(f"Gitea made no pull request of {head} in {repository}")

    def push_url(self, repository: str, user: str = ADMIN) -> str:
        return f"http://{user}:{self.password}@127.0.0.1:{self.port}/{repository}.git"

    def _once(self, *arguments: str) -> None:
        done = subprocess.run(
            [*self._command(), *arguments],
            env=self._environment(),
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"gitea {arguments[0]}: {done.stdout[-1500:]}{done.stderr[-1500:]}")

    def _command(self) -> list[str]:
        return [*_as_nobody(), str(tool("gitea")), "--config", str(self.folder / "app.ini")]

    def _environment(self) -> dict[str, str]:
        return {"PATH": os.environ["PATH"], "HOME": str(self.folder), "GOMAXPROCS": "2", "USER": "nobody"}

    def _await_answer(self) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline and self.process and self.process.poll() is None:
            with contextlib.suppress(OSError):
                urllib.request.urlopen(f"{self.url}/api/healthz", timeout=2).close()
                return
            time.sleep(0.05)
        self.stop()
        raise RuntimeError(f"Gitea did not answer on {self.url}: {(self.folder / 'out').read_text()[-2000:]}")


@contextlib.contextmanager
def running() -> Iterator[GiteaServer]:
    """One with a folder of its own where other users may enter, unlike that of the tests."""
    with tempfile.TemporaryDirectory(prefix="gangline-gitea-", dir="/tmp") as folder:
        server = GiteaServer(Path(folder)).set_up()
        try:
            yield server
        finally:
            server.stop()


def _as_nobody() -> list[str]:
    """Gitea refuses to be root; whoever runs these tests as root has its program and files where only root reads."""
    if os.geteuid() != 0:
        return []
    if shutil.which("setpriv") is None:
        pytest.skip("Gitea refuses to run as root, and setpriv, which would make it another user, is not there")
    read = ["--inh-caps=-all,+dac_read_search", "--ambient-caps=-all,+dac_read_search"]
    bounds = ["--bounding-set=-all,+dac_read_search", "--no-new-privs"]
    return ["setpriv", f"--reuid={_NOBODY}", f"--regid={_NOBODY}", "--clear-groups", *read, *bounds, "--pdeathsig=KILL"]


def _static_files() -> Path:
    """Templates and translations, which lie in the module that the program was built from."""
    version = next(each.version for each in TOOLS if each.name == "gitea")
    done = subprocess.run(
        ["go", "mod", "download", "-json", f"code.gitea.io/gitea@{version}"],
        capture_output=True,
        text=True,
        check=False,
    )
    found = re.search(r'"Dir": "([^"]+)"', done.stdout)
    if not found:
        pytest.skip(f"Go does not have Gitea's module any more: {done.stdout[-300:]}{done.stderr[-300:]}")
    return Path(found[1])
