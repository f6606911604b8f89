"""A `gangline serve` of its own, as an administrator starts it, for a repository on a real forge."""

import os
import subprocess
import sys
import time
import urllib.request
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.ports import free_port

from gangline.signing.record_seal import Sealer
from gangline.spec.config.site import Site
from gangline.storage.open import open_store

_SITE = """\
store = {{ url = "file:{folder}/store" }}
serve = {{ listen = "127.0.0.1:{port}", public_url = "{public_url}", workers = 2 }}
[forge.ours]
kind = "gitea"
url = "{forge}"
projects = {{ "{repository}" = "{project}" }}
token = "secret:env:FORGE_TOKEN"
hook_secret = "secret:env:HOOK_SECRET"
"""


class Service:
    """Its address and its store."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder, self.port = folder, port
        self.store = open_store(f"file:{folder}/store")

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def hook_url(self) -> str:
        return f"{self.url}/hooks/ours"

    @property
    def sealer(self) -> Sealer:
        """With the keys that this service and its drivers have."""
        return Sealer.of(Site(), {"XDG_CONFIG_HOME": str(self.folder / "config")})

    @property
    def token_file(self) -> Path:
        """Holds the token of this machine's administrator."""
        return self.folder / "serve" / "local-token"

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text()


@contextmanager
def served(folder: Path, place, public_url: str):
    """The service while the block runs; what it drove has ended or is left to end by itself."""
    port = free_port()
    folder.mkdir()
    site = folder / "site.toml"
    site.write_text(
        _SITE.format(
            folder=folder,
            port=port,
            public_url=public_url,
            forge=place.gitea.url,
            repository=place.repository,
            project=place.project,
        )
    )
    environ = os.environ | place.environ | {"HOME": str(folder), "XDG_CONFIG_HOME": str(folder / "config")}
    with (folder / "log").open("wb") as log:
        command = [sys.executable, "-m", "gangline", "serve", "--site", str(site)]
        process = subprocess.Popen(command, cwd=folder, env=environ, stdout=log, stderr=log)
    try:
        _await_answer(process, port, folder)
        yield Service(folder, port)
    finally:
        process.terminate()
        process.wait(30)


def _await_answer(process: "subprocess.Popen[bytes]", port: int, folder: Path) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        with suppress(OSError):
            urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=2).close()
            return
        time.sleep(0.1)
    raise RuntimeError(f"gangline serve did not answer: {(folder / 'log').read_text()[-2000:]}")
