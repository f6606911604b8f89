"""A service of two tenants in a process of its own, with the server and the limits that ship, and how much it takes.

`python served.py FOLDER PORT [PROXY...]` is that process; tests start it by `service`.
"""

import json
import os
import resource
import socket
import subprocess
import sys
import time
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import httpx
from tests.ports import free_port

SECONDS = 60.0
ROOT = Path(__file__).parents[2]
MIB = 1 << 20


@dataclass
class Served:
    port: int
    pid: int
    tokens: dict[str, str]

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def client(self, who="", *, address="127.0.0.1", **headers):
        """Requests of one address of this machine; `who` is `project role`."""
        shown = {"Authorization": f"Bearer {self.tokens[who]}"} if who else {}
        transport = httpx.HTTPTransport(local_address=address, verify=False)  # plain HTTP
        return httpx.Client(base_url=self.url, headers=shown | headers, transport=transport, timeout=30)

    def connect(self, address="127.0.0.1"):
        return socket.create_connection(("127.0.0.1", self.port), timeout=20, source_address=(address, 0))

    def rss_bytes(self):
        return self._status("VmRSS")

    def forget_peak(self):
        Path(f"/proc/{self.pid}/clear_refs").write_text("5")

    def peak_bytes(self):
        """Since it was forgotten."""
        return self._status("VmHWM")

    def _status(self, name):
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        return int(next(line for line in lines if line.startswith(name)).split()[1]) * 1024


@contextmanager
def service(folder, *proxies):
    """A running service whose state lies in `folder`."""
    port = free_port()
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    process = subprocess.Popen([sys.executable, __file__, str(folder), str(port), *proxies], env=environ, cwd=ROOT)
    try:
        deadline = time.monotonic() + SECONDS
        while not _answers(port):
            assert process.poll() is None
            assert time.monotonic() < deadline, "the service did not come up"
            time.sleep(0.05)
        tokens = json.loads((folder / "tokens.json").read_text())
        yield Served(port, process.pid, tokens)
    finally:
        process.terminate()
        process.wait(30)


def _answers(port):
    with closing(socket.socket()) as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def room_for_files(count):
    """So many files in this process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < count:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(count, hard), hard))


def main():
    from tests.serve.world import world

    from gangline.cli.log_setup import set_up_logs
    from gangline.serve.app import create_app
    from gangline.serve.server import bind, serve_until_signal

    set_up_logs({})
    folder, port, proxies = Path(sys.argv[1]), int(sys.argv[2]), tuple(sys.argv[3:])
    with world(folder) as found:
        site = replace(found.context.site, serve=replace(found.context.site.serve, proxies=proxies))
        app = create_app(replace(found.context, site=site))
        names = {" ".join(who): token for who, token in found.tokens.items()}
        (folder / "tokens.json").write_text(json.dumps(names))
        with bind(f"127.0.0.1:{port}") as bound:
            serve_until_signal(app, bound, stopping=app.state.service.close, proxies=proxies)


if __name__ == "__main__":
    main()
