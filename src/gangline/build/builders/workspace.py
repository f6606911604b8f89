"""Workspace of a builder: a temporary folder, one log, a closed environment, and programs run with a time limit.

Programs get PATH, the variables that name their settings, proxies and pip's own variables; nothing else of the
caller's environment, so that no secret of it can reach a log.
"""

import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO

from gangline.build.builders.recipe import Recipe, package_members
from gangline.build.image_registry.credentials import docker_config_folder, find_login
from gangline.errors import BuildError, NotInstalledError

TIMEOUT_SECONDS = 3600.0
LAST_LINES = 12
_PASSED = re.compile(
    r"PATH|HOME|TMPDIR|LANG|LC_\w+|XDG_RUNTIME_DIR|SSL_CERT_(FILE|DIR)|REQUESTS_CA_BUNDLE|(HTTPS?|NO|ALL)_PROXY"
    r"|(https?|no|all)_proxy|PIP_\w+|DOCKER_(HOST|CONTEXT|TLS_VERIFY|CERT_PATH)|BUILDKIT_HOST|BUILDAH_\w+|STORAGE_DRIVER"
)
_CREDENTIALS = re.compile(r"(?<=://)[^/\s@]+@")


@dataclass(frozen=True, kw_only=True, slots=True)
class BuildWorkspace:
    """Scratch folder, log and environment of one build."""

    folder: Path
    """Scratch; gone when the build ends."""
    log: Path
    environ: Mapping[str, str]
    """The driver's environment; programs get a part of it."""

    @staticmethod
    @contextmanager
    def at(environ: Mapping[str, str]) -> "Iterator[BuildWorkspace]":
        """A workspace in a temporary folder, which is removed afterwards."""
        with TemporaryDirectory(prefix="gangline-build-") as name:
            yield BuildWorkspace(folder=Path(name), log=Path(name) / "build.log", environ=environ)

    def run(
        self, command: Sequence[str], *, env: Mapping[str, str] | None = None, timeout: float = TIMEOUT_SECONDS
    ) -> None:
        """Run `command` to its end, its words in the log.

        Raises:
            NotInstalledError: There is no such program.
            BuildError: It failed, or took longer than `timeout` seconds.
        """
        began = time.monotonic()
        with self.log.open("ab") as log:
            log.write(f"$ {' '.join(command)}\n".encode())
            log.flush()
            code = _run(command, self.program_environ() | dict(env or {}), log, timeout)
        if code is None:
            raise BuildError(
                f"{command[0]} {command[1]} took longer than {timeout:.0f} s; its last output: {self.last_words()}"
            )
        if code:
            took = time.monotonic() - began
            raise BuildError(f"{command[0]} {command[1]} ended with {code} after {took:.0f} s: {self.last_words()}")

    def program_environ(self) -> dict[str, str]:
        """The variables of the driver that build programs get."""
        return {name: value for name, value in self.environ.items() if _PASSED.fullmatch(name)}

    @contextmanager
    def docker_config(self, recipe: Recipe) -> Iterator[Path]:
        """A configuration folder with the logins that pull and push need and no others, 0600."""
        hosts = {recipe.base.host, recipe.image.host}
        found = {host: find_login(host, self.environ) for host in sorted(hosts)}
        with docker_config_folder({host: login for host, login in found.items() if login}) as folder:
            yield folder

    def pip_config(self) -> Path:
        """The index and its conditions as a file, for builds that do not see this environment."""
        path = self.folder / "pip.conf"
        known = {"index-url": "PIP_INDEX_URL", "trusted-host": "PIP_TRUSTED_HOST", "timeout": "PIP_DEFAULT_TIMEOUT"}
        lines = [f"{name} = {self.environ[var]}" for name, var in known.items() if self.environ.get(var)]
        path.touch(mode=0o600)
        path.write_text("\n".join(["[global]", *lines, ""]))
        return path

    def context(self, recipe: Recipe) -> Path:
        """A folder with the Dockerfile and what it copies, and nothing else."""
        folder = self.folder / "context"
        folder.mkdir()
        (folder / "Dockerfile").write_bytes(recipe.dockerfile)
        (folder / "requirements.lock").write_bytes(recipe.lock)
        for member in package_members("gangline"):
            target = folder / member.path
            if member.folder:
                target.mkdir()
            elif isinstance(member.data, Path):
                shutil.copyfile(member.data, target)
        return folder

    def words(self) -> str:
        """The log so far, without credentials of addresses."""
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        return _CREDENTIALS.sub("", text)

    def last_words(self) -> str:
        """The last lines of the log on one line, for a message."""
        lines = [line.strip() for line in self.words().splitlines() if line.strip()]
        return " | ".join(lines[-LAST_LINES:])[-2000:] or "nothing"


def _run(command: Sequence[str], environ: Mapping[str, str], log: IO[bytes], timeout: float) -> int | None:
    """Exit code; None where the time was up. Whatever the program started ends with it."""
    if shutil.which(command[0], path=environ.get("PATH")) is None:
        raise NotInstalledError(
            f"registry.builder: wanted the program {command[0]} on the PATH, found none; install it"
        )
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
        env=dict(environ),
        start_new_session=True,
    )
    try:
        return process.wait(timeout)
    except subprocess.TimeoutExpired:
        return None
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
