"""Real S3 servers for tests, each a child on a free loopback port with its own folder and a random key."""

import contextlib
import os
import shutil
import signal
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from secrets import token_hex
from typing import Any

import pytest
import urllib3
from tests.ports import free_port
from tests.tools.__main__ import tools_folder

from gangline.storage.objects.protocol import ObjectStore
from gangline.storage.open import open_store

_START_SECONDS = 60
_DIES_WITH_US = ["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []
"""Also when the tests are killed; the thread that starts a server must outlive it."""


def tool(name: str) -> Path:
    """Path of a server that `make tools` built; skips the test without it."""
    folder = tools_folder()
    if not (folder / name).is_file():
        pytest.skip(f"{name} is not in {folder}: make tools builds it")
    return folder / name


@dataclass
class S3Server:
    """One server process; `stop`, `kill` and `start` again on the same port and folder."""

    name: str
    folder: Path
    bucket: str = "bucket"
    access_key: str = "gangline"
    secret_key: str = field(default_factory=lambda: token_hex(16))
    port: int = field(default_factory=free_port)
    process: subprocess.Popen[bytes] | None = None

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def credentials(self) -> str:
        return f"{self.access_key}:{self.secret_key}"

    def store(self, prefix: str = "", **options: Any) -> ObjectStore:
        """Open the bucket below `prefix`; options as of `open_store`."""
        options = {"endpoint": self.endpoint, "credentials": self.credentials, **options}
        return open_store(f"s3://{self.bucket}/{prefix}".rstrip("/"), **options)

    def start(self) -> "S3Server":
        (self.folder / "data" / self.bucket).mkdir(parents=True, exist_ok=True)
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [*_DIES_WITH_US, *self._command()], env=self._environment(), stdout=log, stderr=log
            )
        self._await_answer()
        return self

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def _end(self, signal_number: int) -> None:
        if self.process is not None:
            self.process.send_signal(signal_number)
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
            self.process = None

    def _command(self) -> list[str]:
        program, data = str(tool(self.name)), str(self.folder / "data")
        address = f"127.0.0.1:{self.port}"
        if self.name == "minio":
            return [program, "server", "--quiet", "--address", address, "--console-address", "127.0.0.1:0", data]
        # Metadata in extended attributes: with --sidecar a reader may see new data with the old ETag.
        return [program, "--quiet", "--keep-alive", "--port", address, "posix", data]

    def _environment(self) -> dict[str, str]:
        own = {"MINIO_ROOT_USER": self.access_key, "MINIO_ROOT_PASSWORD": self.secret_key, "MINIO_BROWSER": "off"}
        if self.name == "versitygw":
            own = {"ROOT_ACCESS_KEY": self.access_key, "ROOT_SECRET_KEY": self.secret_key}
        return {"PATH": os.environ["PATH"], "HOME": str(self.folder), "GOMAXPROCS": "2", **own}

    def _await_answer(self) -> None:
        deadline = time.monotonic() + _START_SECONDS
        pool = urllib3.PoolManager(retries=False, timeout=2)
        while time.monotonic() < deadline:
            with contextlib.suppress(urllib3.exceptions.HTTPError):
                if pool.request("GET", f"{self.endpoint}/{self.bucket}").status == 403:
                    return
            if self.process is None or self.process.poll() is not None:
                break
            time.sleep(0.05)
        log = (self.folder / "log").read_text()[-2000:]
        self.kill()
        raise RuntimeError(f"{self.name} did not answer on {self.endpoint}:\n{log}")
