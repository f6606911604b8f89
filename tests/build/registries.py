"""A real registry on loopback: Debian's docker-registry, configured here, with its storage in a folder."""

import shutil
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.ports import free_port

PROGRAM = "docker-registry"
CONFIG = """\
version: 0.1
log: {{level: error}}
storage:
  filesystem: {{rootdirectory: {folder}/data}}
  delete: {{enabled: true}}
http:
  addr: 127.0.0.1:{port}
{auth}"""


@contextmanager
def serving(folder: Path, *, auth: str = "") -> Iterator[str]:
    """`127.0.0.1:PORT` of a registry that lives as long as the block."""
    if shutil.which(PROGRAM) is None:
        pytest.skip(f"needs {PROGRAM}: apt-get install docker-registry")
    port = free_port()
    (folder / "registry.yml").write_text(CONFIG.format(folder=folder, port=port, auth=auth))
    with (folder / "registry.log").open("wb") as log:
        process = subprocess.Popen([PROGRAM, "serve", str(folder / "registry.yml")], stdout=log, stderr=log)
    try:
        _wait(f"http://127.0.0.1:{port}/", process, folder / "registry.log")
        yield f"127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


def _wait(url: str, process: subprocess.Popen, log: Path) -> None:
    for _ in range(600):
        if process.poll() is not None:
            raise AssertionError(log.read_text())
        try:
            urllib.request.urlopen(url, timeout=5).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise AssertionError(f"{PROGRAM} did not answer: {log.read_text()}")
