"""`gangline serve` as it ships over a repository of this machine: orders, what `/healthz` and memory take meanwhile."""

import json
import os
import socket
import subprocess
import sys
import threading
import time
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
from tests.line.repositories import make_repository
from tests.ports import free_port

SECONDS = 240.0
OVER = {"done", "dropped", "quarantined"}


@dataclass
class Building:
    folder: Path
    repo: Path
    port: int
    pid: int = 0
    token: str = ""
    waits: list[float] = field(default_factory=list)
    """Seconds that each `/healthz` took, since `watched` began."""

    def client(self):
        return httpx.Client(
            base_url=f"http://127.0.0.1:{self.port}", headers={"Authorization": f"Bearer {self.token}"}, timeout=60,
            trust_env=False, verify=False,
        )  # fmt: skip

    def order(self, branch):
        with self.client() as client:
            answer = client.post("/api/v1/runs", json={"project": "cheap", "branch": branch})
            assert answer.status_code == 202, answer.text
            return answer.json()["id"]

    def cancel(self, order):
        with self.client() as client:
            answer = client.post(f"/api/v1/orders/{order}/cancel", json={"reason": "enough"})
            assert answer.status_code == 202, answer.text
            return answer.json()

    def state(self, order):
        with self.client() as client:
            return client.get(f"/api/v1/orders/{order}").json()

    def wait(self, order, *, seconds=SECONDS, states=OVER):
        """The order once it is over, or in one of some states."""
        deadline = time.monotonic() + seconds
        while (found := self.state(order))["state"] not in states:
            assert time.monotonic() < deadline, found
            time.sleep(0.1)
        return found

    @contextmanager
    def watched(self):
        """`/healthz` is asked all the time."""
        over = threading.Event()
        self.waits.clear()

        def ask():
            with self.client() as client:
                while not over.wait(0.02):
                    began = time.monotonic()
                    assert client.get("/healthz").status_code == 200
                    self.waits.append(time.monotonic() - began)

        thread = threading.Thread(target=ask)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def memory_bytes(self, name="VmRSS"):
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        return int(next(line for line in lines if line.startswith(name)).split()[1]) * 1024

    def forget_peak(self):
        Path(f"/proc/{self.pid}/clear_refs").write_text("5")

    def peak_bytes(self):
        return self.memory_bytes("VmHWM")


@contextmanager
def building(folder, *, workers=1, site="", path=None):
    """A service with one worker, over `folder/repo`; `path` is looked at for programs first."""
    repo = make_repository(folder / "repo")
    port = free_port()
    (folder / "site.toml").write_text(
        f'[store]\nurl = "file:{folder}/store"\n[serve]\nlisten = "127.0.0.1:{port}"\nhome = "{folder}/home"\n'
        f'workers = {workers}\nrepositories = {{ cheap = "{repo}" }}\n{site}'
    )
    command = [sys.executable, "-P", "-m", "gangline", "serve", "--json", "--repo", str(repo)]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [*command, "--site", str(folder / "site.toml")], stdout=subprocess.PIPE, stderr=log, cwd=folder,
            env=os.environ | ({"PATH": f"{path}:{os.environ['PATH']}"} if path else {}),
        )  # fmt: skip
    try:
        json.loads(process.stdout.readline())
        service = Building(folder, repo, port, process.pid, (folder / "home" / "local-token").read_text().strip())
        deadline = time.monotonic() + SECONDS
        while not _answers(port):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        yield service
    finally:
        process.terminate()
        process.wait(30)
        process.stdout.close()


def _answers(port):
    with closing(socket.socket()) as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
