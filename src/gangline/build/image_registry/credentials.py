"""Credentials of image registries, from docker's configuration: by entry or by credential helper."""

import base64
import binascii
import json
import re
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from gangline.errors import ConfigError

HELPER_SECONDS = 20.0
_HELPER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_MAX_BYTES = 1 << 20
_DOCKER_HUB = ("docker.io", "https://index.docker.io/v1/")


@dataclass(frozen=True, slots=True)
class RegistryLogin:
    """User and password at an image registry."""

    user: str
    password: str = field(repr=False)

    @property
    def basic(self) -> str:
        """User and password in the encoding of HTTP basic authentication."""
        return base64.b64encode(f"{self.user}:{self.password}".encode()).decode()


def find_login(host: str, environ: Mapping[str, str]) -> RegistryLogin | None:
    """The login of docker's configuration for `host`; None where it has none.

    Raises:
        ConfigError: The configuration or the helper that it names does not answer.
    """
    path = _config_file(environ)
    if not path.exists():
        return None
    config = _read(path)
    server = _helper_of(host)
    helper = (config.get("credHelpers") or {}).get(host) or config.get("credsStore")
    if helper:
        return _ask_helper(str(helper), server, environ)
    auths = config.get("auths") or {}
    for name in (host, server, f"https://{host}", f"https://{host}/v2/"):
        if isinstance(auths.get(name), dict) and auths[name]:
            return _login(auths[name], f"{path}: auths.{name}")
    return None


@contextmanager
def docker_config_folder(logins: Mapping[str, RegistryLogin]) -> Iterator[Path]:
    """A folder for DOCKER_CONFIG that only its owner may read, with `logins` by host; gone afterwards."""
    with TemporaryDirectory(prefix="gangline-docker-") as name:
        path = Path(name) / "config.json"
        path.touch(mode=0o600)
        auths = {_helper_of(host): {"auth": login.basic} for host, login in logins.items()}
        path.write_text(json.dumps({"auths": auths}))
        yield Path(name)


def _helper_of(host: str) -> str:
    """What docker's configuration calls `host`."""
    return _DOCKER_HUB[1] if host == _DOCKER_HUB[0] else host


def _config_file(environ: Mapping[str, str]) -> Path:
    if named := environ.get("REGISTRY_AUTH_FILE"):
        return Path(named)
    folder = environ.get("DOCKER_CONFIG") or str(Path(environ.get("HOME") or "/") / ".docker")
    return Path(folder) / "config.json"


def _read(path: Path) -> dict[str, Any]:
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise ConfigError(f"{path}: wanted docker's configuration, found more than {_MAX_BYTES} bytes")
        found = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: wanted docker's configuration as JSON: {error}; docker login writes one") from error
    if not isinstance(found, dict):
        raise ConfigError(f"{path}: wanted docker's configuration as a JSON object; docker login writes one")
    return found


def _login(entry: dict[str, Any], place: str) -> RegistryLogin:
    if entry.get("identitytoken"):
        raise ConfigError(f"{place}: wanted user and password, found an identity token; docker login --username works")
    if "auth" not in entry:
        return RegistryLogin(str(entry.get("username", "")), str(entry.get("password", "")))
    try:
        user, _, password = base64.b64decode(str(entry["auth"]), validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError) as error:
        raise ConfigError(f"{place}.auth: wanted user and password in base64, found something else") from error
    return RegistryLogin(user, password)


def _ask_helper(helper: str, host: str, environ: Mapping[str, str]) -> RegistryLogin | None:
    if not _HELPER.fullmatch(helper):
        raise ConfigError(
            f"docker's configuration names the credential helper {helper!r}, which is not the name of a program"
        )
    command = [f"docker-credential-{helper}", "get"]
    try:
        done = subprocess.run(
            command, input=host.encode(), capture_output=True, check=False, timeout=HELPER_SECONDS, env=dict(environ)
        )
    except FileNotFoundError as error:
        raise ConfigError(f"docker's configuration asks {command[0]} for {host}, which is not installed") from error
    except subprocess.TimeoutExpired as error:
        raise ConfigError(f"{command[0]} did not answer for {host} in {HELPER_SECONDS:.0f} s") from error
    if done.returncode:
        if b"not found" in done.stdout.lower():  # the helper's own way to say so
            return None
        raise ConfigError(f"{command[0]} ended with {done.returncode} for {host}; docker login {host} may help")
    return _helper_login(done.stdout, command[0])


def _helper_login(said: bytes, helper: str) -> RegistryLogin:
    try:
        found = json.loads(said)
        return RegistryLogin(str(found["Username"]), str(found["Secret"]))
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{helper}: wanted Username and Secret as JSON, found something else") from error
