"""uv, the package installer: its program, its environment variables, and its failures as gangline errors."""

import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from gangline.errors import BuildError, ConfigError, GanglineError, IntegrityError, NotInstalledError, StorageError
from gangline.spec.config.problems import printable
from gangline.spec.config.secrets import resolve_secret
from gangline.spec.config.site import Site

MAX_SECONDS = 3600.0
TICK_SECONDS = 15.0
_PASSED_VARIABLES = re.compile(
    r"PATH|HOME|USER|LANG|LC_.*|TMPDIR|XDG_.*|SSL_.*|NETRC|(?i:https?_proxy|no_proxy|all_proxy)"
    r"|UV_(CACHE_DIR|LINK_MODE|NO_CACHE|DEFAULT_INDEX|INDEX.*|EXTRA_INDEX_URL|FIND_LINKS|NO_INDEX|OFFLINE|NATIVE_TLS"
    r"|SYSTEM_CERTS|INSECURE_HOST|HTTP_.*|REQUEST_.*|KEYRING_PROVIDER|CONCURRENT_.*|PYTHON_INSTALL_DIR)"
)
_MEANINGS: Sequence[tuple[type[GanglineError], str]] = (
    (StorageError, r"No space left on device|os error 28|Disk quota exceeded|Read-only file system"),
    (IntegrityError, r"Hash mismatch"),
    (ConfigError, r"401 Unauthorized|403 Forbidden|HTTP status client error \(40[13]"),
    (StorageError, r"error sending request|[Cc]onnection refused|dns error|timed out|tcp connect"),
    (StorageError, r"Failed to (fetch|download)|HTTP status server error|[Nn]etwork connectivity is disabled"),
    (ConfigError, r"No solution found|no (usable )?wheels|not found in the (package registry|provided)|has no wheels"),
    (ConfigError, r"is incompatible with|doesn't match|No interpreter found|building.*is disabled|no version of"),
)
"""The first match in uv's output decides: uv reports a wrong hash inside the message of a failed download."""
_NO_WHEEL = re.compile(r"([A-Za-z0-9._-]+==[^\s,;]+) has no usable wheels")


@dataclass(frozen=True, slots=True)
class Uv:
    """Runs uv with a closed environment and with errors by class."""

    program: str
    environ: Mapping[str, str]
    secrets: tuple[str, ...] = ()
    """Values that are removed from messages."""

    @staticmethod
    def find(environ: Mapping[str, str], site: Site = Site(), *, is_own: bool = False) -> "Uv":  # noqa: B008  # frozen
        """uv with the indexes of the site; indexes with credentials only if `is_own`: the commit is not of a fork.

        Raises:
            NotInstalledError: It is not installed.
            ConfigError: A secret that the site refers to is missing.
        """
        program = _own_program() or shutil.which("uv", path=environ.get("PATH"))
        if program is None:
            raise NotInstalledError(
                f"env.lock: wanted uv to install the lock, found none next to {sys.executable} or on"
                " PATH; pip install uv works"
            )
        passed = {name: value for name, value in environ.items() if _PASSED_VARIABLES.fullmatch(name)}
        indexes, secrets = _indexes(site, environ, is_own=is_own)
        links = {"UV_FIND_LINKS": ",".join(site.environments.find_links)} if site.environments.find_links else {}
        fixed = {"UV_NO_PROGRESS": "1", "UV_PYTHON_DOWNLOADS": _downloads(site), "NO_COLOR": "1"}
        return Uv(program, passed | indexes | links | fixed, secrets)

    @property
    def indexes(self) -> str:
        """Addresses of the indexes that it asks, but for the public one, in one text."""
        named = ("UV_INDEX", "UV_DEFAULT_INDEX", "UV_EXTRA_INDEX_URL", "UV_INDEX_URL")
        return " ".join(self.environ.get(name, "") for name in named)

    def run(self, *arguments: str, folder: Path, what: str, tick: Callable[[float], None] = lambda _: None) -> bytes:
        """Run uv; its standard output. uv is killed if this call ends early. `tick` gets the seconds so far every 15 s.

        Raises:
            ConfigError, IntegrityError, StorageError, BuildError: uv failed; the message has its output.
        """
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            try:
                process = subprocess.Popen(
                    [self.program, *arguments], cwd=folder, env=dict(self.environ), stdin=subprocess.DEVNULL,
                    stdout=out, stderr=err,
                )  # fmt: skip
            except OSError as error:
                raise ConfigError(f"cannot start {self.program}: {error.strerror}; pip install uv works") from error
            try:
                code = _wait(process, tick)
            finally:
                process.kill()
                process.wait()
            out.seek(0)
            err.seek(0)
            if code != 0:
                raise self._error(err.read().decode(errors="replace"), what, code)
            return out.read()

    def _error(self, output: str, what: str, code: int | None) -> GanglineError:
        if code is None:
            return StorageError(f"{what}: uv took over {MAX_SECONDS:.0f} s; run again, fetched wheels are cached")
        for secret in self.secrets:
            output = output.replace(secret, "****")
        kind = next((kind for kind, pattern in _MEANINGS if re.search(pattern, output)), BuildError)
        words = " ".join(
            part for line in output.splitlines() if (part := line.strip(" │├╰─▶×╴")) and not _is_progress(part)
        )
        if (match := _NO_WHEEL.search(words)) is not None:
            return ConfigError(f"{what}: {_without_wheel(match[1])}")
        again = "; run again, fetched wheels are cached" if kind is StorageError else ""
        return kind(f"{what}: {printable(words)[:1500] or f'uv ended with {code}'}{again}")


def _without_wheel(package: str) -> str:
    """Refusal of `NAME==VERSION`, which its authors may publish as source alone."""
    return (
        f"{package} has no wheel that this Python can use, and nothing is built; pip wheel --no-deps {package}"
        " -w FOLDER makes one: name FOLDER in environments.find_links of site.toml, and lock into a new file with"
        " --find-links FOLDER"
    )


def _own_program() -> str | None:
    """The program next to this interpreter, or that of the installed package `uv`."""
    installed = Path(sys.executable).with_name("uv")
    if installed.exists():
        return str(installed)
    with suppress(ImportError, FileNotFoundError):
        from uv import find_uv_bin

        return str(find_uv_bin())
    return None


def _wait(process: "subprocess.Popen[bytes]", tick: Callable[[float], None]) -> int | None:
    began = time.monotonic()
    while (seconds := time.monotonic() - began) < MAX_SECONDS:
        try:
            return process.wait(TICK_SECONDS)
        except subprocess.TimeoutExpired:
            tick(seconds + TICK_SECONDS)
    return None


def _is_progress(line: str) -> bool:
    return line.startswith(("Using ", "Resolved ", "Prepared ", "Downloading ", "Downloaded ", "Building ", "warning:"))


def _downloads(site: Site) -> str:
    return "automatic" if site.environments.python_downloads else "never"


def _indexes(site: Site, environ: Mapping[str, str], *, is_own: bool) -> tuple[dict[str, str], tuple[str, ...]]:
    """(variables of uv for the indexes of the site, their secrets); passwords are never arguments."""
    found: dict[str, str] = {}
    named, secrets = [], []
    for name, index in site.index.items():
        if index.credentials:
            if not is_own:
                continue
            user, colon, password = (secret := resolve_secret(index.credentials, environ)).partition(":")
            if not colon:
                raise ConfigError(f"site.toml: index.{name}.credentials: wanted USER:PASSWORD, found another value")
            variable = re.sub(r"[^A-Z0-9]", "_", name.upper())
            found |= {f"UV_INDEX_{variable}_USERNAME": user, f"UV_INDEX_{variable}_PASSWORD": password}
            secrets += [secret, password]
        if index.default:
            found["UV_DEFAULT_INDEX"] = f"{name}={index.url}"
        else:
            named.append(f"{name}={index.url}")
    return found | ({"UV_INDEX": " ".join(named)} if named else {}), tuple(filter(None, secrets))
