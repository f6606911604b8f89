"""Where things of a site lie on this machine: `.gangline` beside line.toml, the store, its credentials."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from gangline.errors import StorageError
from gangline.spec.secrets import resolve_secret
from gangline.spec.site import Site
from gangline.storage.open import open_store
from gangline.storage.protocol import ObjectStore

GREETING_SECONDS = 10.0
"""Nobody sits longer before a store that never answered."""


def home(repo: Path) -> Path:
    """`.gangline` of a model repository: made when missing, ignoring itself.

    Raises:
        StorageError: It cannot be written.
    """
    folder = repo / ".gangline"
    ignore = folder / ".gitignore"
    with writing(folder):
        if not ignore.exists():
            folder.mkdir(exist_ok=True)
            ignore.write_text("*\n", encoding="ascii")
    return folder


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """The block writes this file, or below this folder: a full disk or a read-only one is a StorageError."""
    try:
        yield
    except OSError as error:
        said = error.strerror or str(error)
        named = error.filename if isinstance(error.filename, str) else ""  # of a descriptor it is a number
        said += f": {named}" if named and Path(named) != path else ""
        raise StorageError(f"wanted to write {path}, found: {said}; make room or allow it, then run again") from error


def touch(path: Path) -> None:
    """Something that goes on says by the time of this file that it does."""
    with writing(path):
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
        with suppress(StorageError):  # who only reads needs no folder; who writes is told by the store
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
        greeting_seconds=GREETING_SECONDS,
    )
