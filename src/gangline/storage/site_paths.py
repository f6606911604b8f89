"""Paths and store of a site on this machine: `.gangline` next to line.toml, targets, store URL, credentials."""

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from gangline.errors import StorageError, storage_errors
from gangline.spec.config.secrets import resolve_secret
from gangline.spec.config.site import Site
from gangline.storage.objects.protocol import ObjectStore
from gangline.storage.open import open_store

CONNECT_SECONDS = 10.0
"""For a store that has not answered yet: a person waits for it."""


def home(repo: Path) -> Path:
    """`.gangline` of a model repository: made when missing, ignoring itself.

    Raises:
        StorageError: It cannot be written.
    """
    folder = repo / ".gangline"
    ignore = folder / ".gitignore"
    with storage_errors(folder):
        if not ignore.exists():
            folder.mkdir(exist_ok=True)
            ignore.write_text("*\n", encoding="ascii")
    return folder


def touch(path: Path) -> None:
    """Set the file's time to now, as a sign that its writer is alive."""
    with storage_errors(path):
        path.touch()


def targets(repo: Path, site: Site) -> Path:
    """Folder of the files that tell a Prometheus of this machine what to scrape."""
    return Path(site.metrics.targets).expanduser() if site.metrics.targets else home(repo) / "targets"


def store_url(repo: Path, site: Site) -> str:
    """The site's store as any process reads it: a folder by its absolute path."""
    url = site.store.url
    if not url.startswith("file:"):
        return url
    path = Path(url.removeprefix("file:")).expanduser()
    if not path.is_absolute():
        with suppress(StorageError):  # a reader needs no folder; for a writer the store raises
            home(repo)
    return f"file:{(repo / path).resolve()}"


def store_credentials(site: Site, environ: Mapping[str, str]) -> str | None:
    """`ACCESS:SECRET`, resolved now; None where the store needs none."""
    return resolve_secret(site.store.credentials, environ) if site.store.credentials else None


def open_site_store(repo: Path, site: Site, environ: Mapping[str, str]) -> ObjectStore:
    """Raises ConfigError or StorageError, saying what to set."""
    return open_store(
        store_url(repo, site),
        endpoint=site.store.endpoint,
        region=site.store.region,
        credentials=store_credentials(site, environ),
        connect_seconds=CONNECT_SECONDS,
    )


def cache_folder(environ: Mapping[str, str], home: Path) -> Path:
    """`GANGLINE_CACHE` of this process, else the user's cache; `home` if it names neither."""
    if own := os.environ.get("GANGLINE_CACHE"):
        return Path(own)
    if base := environ.get("XDG_CACHE_HOME"):
        return Path(base) / "gangline"
    return Path(environ["HOME"]) / ".cache" / "gangline" if environ.get("HOME") else home / "cache"
