"""The home folder of one service: database, keys, clones, and the site file of its child processes. Mode 0700.

One service at a time uses a home: its drivers, clones and the SQLite file belong to one process.
"""

import fcntl
import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gangline.errors import CapacityError, storage_errors
from gangline.serve.context.accounts import KnownToken, digest_of, new_token
from gangline.serve.database.types import Principal
from gangline.spec.codec import to_plain
from gangline.spec.config.load import load_line
from gangline.spec.config.site import Site
from gangline.storage.site_paths import store_url

LOCAL_TOKEN = "local-token"  # noqa: S105  # the file's name


@dataclass(frozen=True, slots=True)
class ServiceHome:
    """Places in that folder."""

    folder: Path

    @staticmethod
    def of(repo: Path, site: Site, environ: Mapping[str, str]) -> "ServiceHome":
        """`serve.home`; else next to a store that is a folder, else in the user's data folder. Created if missing.

        Raises:
            StorageError: It cannot be made.
        """
        url = store_url(repo, site)
        if site.serve.home:
            folder = Path(site.serve.home).expanduser()
        elif url.startswith("file:"):
            folder = Path(url.removeprefix("file:")).parent / "serve"
        else:
            data = environ.get("XDG_DATA_HOME") or Path(environ.get("HOME", "/nonexistent")) / ".local" / "share"
            folder = Path(data) / "gangline" / "serve"
        with storage_errors(folder):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            folder.chmod(0o700)
        return ServiceHome(folder.resolve())

    @property
    def database(self) -> Path:
        """Path of the SQLite file, used where the site names no database."""
        return self.folder / "serve.db"

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Lock the home: no other service uses it while the block runs.

        Raises:
            CapacityError: Another service is here.
        """
        with storage_errors(self.folder), (self.folder / "lock").open("a+") as lock_file:
            try:
                fcntl.flock(lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                lock_file.seek(0)
                owner = lock_file.read().strip() or "?"
                raise CapacityError(
                    f"{self.folder} is in use by another gangline serve (process {owner}); stop it, or set serve.home"
                ) from error
            lock_file.truncate(0)
            lock_file.write(str(os.getpid()))
            lock_file.flush()
            yield

    def local_token(self) -> KnownToken:
        """Token of the administrator, for any user who may read the file; made the first time."""
        path = self.folder / LOCAL_TOKEN
        with storage_errors(path):
            if not path.exists():
                _write_private(path, new_token() + "\n")
            token = path.read_text("ascii").strip()
        return KnownToken(digest_of(token), Principal(name="local", roles={"*": "admin"}))

    def write_site(self, site: Site) -> Path:
        """The site for children: everything as it is in force here."""
        path = self.folder / "site.toml"
        with storage_errors(path):
            _write_private(path, site_text(site))
        return path


def effective_site(repo: Path, site: Site) -> Site:
    """`site` as every process finds it: store and targets by absolute names, the line of `repo` if it has no other.

    Raises:
        ConfigError: The line of `repo` does not hold.
    """
    store = replace(site.store, url=store_url(repo, site))
    serve = site.serve
    no_other = serve.this_repository and not site.forge and not serve.repositories
    if no_other and (repo / "line.toml").is_file():
        serve = replace(serve, repositories={load_line(repo).project.name: str(repo)})
    targets = site.metrics.targets or str((repo / ".gangline" / "targets").resolve())
    return replace(site, store=store, serve=serve, metrics=replace(site.metrics, targets=targets))


def site_text(site: Site) -> str:
    """TOML that reads as `site`; references to secrets stay references."""
    head = "# Written by gangline serve for the runs that it starts.\n"
    return head + "\n".join(_tables(to_plain(site), ()))


def _tables(plain: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[str]:
    rows = {key: value for key, value in plain.items() if not isinstance(value, dict) and value is not None}
    if path and (rows or not plain):
        name = ".".join(map(_key, path))
        yield "\n".join([f"[{name}]", *(f"{_key(key)} = {_toml_value(value)}" for key, value in rows.items()), ""])
    for key, value in plain.items():
        if isinstance(value, dict) and value:
            yield from _tables(value, (*path, key))


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _toml_value(name)


def _toml_value(value: Any) -> str:
    """Strings, numbers, booleans and lists are written alike by JSON and TOML."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _write_private(path: Path, text: str) -> None:
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    fresh.unlink(missing_ok=True)
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
    fresh.rename(path)
