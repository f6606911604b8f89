"""Paths and store of a site on this machine: `.gangline` next to line.toml, targets, store URL, credentials.

Linked work trees of one repository share what its main one has: a run in one finds its base, wherever that was trained.
"""

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from gangline.errors import StorageError, storage_errors
from gangline.spec.config import grammar
from gangline.spec.config.secrets import resolve_secret
from gangline.spec.config.site import Site
from gangline.storage.objects.protocol import ObjectStore
from gangline.storage.open import open_store

if TYPE_CHECKING:
    from gangline.storage.s3.credentials import CredentialSource

CONNECT_SECONDS = 10.0
"""Connect time-out of a store that has not answered yet: the user waits for it."""
_ENDS = ("commondir", "gitdir")
"""Files of a linked work tree in the git folder: that folder, and its `.git`."""


def home(repo: Path) -> Path:
    """`.gangline` of a model repository, or of the main work tree of a linked one: made when missing, ignoring itself.

    Raises:
        StorageError: It cannot be written.
    """
    main = main_folder(repo)
    folder = main / ".gangline"
    ignore = folder / ".gitignore"
    with storage_errors(folder):
        if not ignore.exists():
            folder.mkdir(parents=main != repo, exist_ok=True)
            ignore.write_text("*\n", encoding="ascii")
    return folder


def main_folder(repo: Path) -> Path:
    """`repo`, and in a linked work tree the same folder of the main one; `gangline` in a git folder that has none.

    Both ends must name each other, as git writes them: a stranger's file `.git` alone leads to no other repository.
    """
    place = repo.resolve()
    tree = next((path for path in (place, *place.parents) if (path / ".git").exists()), None)
    if tree is None or not (link := tree / ".git").is_file():
        return repo
    with storage_errors(link):
        git = tree / link.read_text("utf-8", "replace").removeprefix("gitdir:").strip()
        if not (git / "commondir").is_file():  # of a submodule, or apart from its only work tree
            return repo
        common, back = ((git / (git / each).read_text("utf-8", "replace").strip()).resolve() for each in _ENDS)
    if back != link.resolve() or git.resolve().parent != common / "worktrees":
        return repo
    main = common.parent if common.name == ".git" else common / "gangline"
    return main / place.relative_to(tree)


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
    return f"file:{(main_folder(repo) / path).resolve()}"


def store_credentials(site: Site, environ: Mapping[str, str]) -> "str | CredentialSource | None":
    """What `open_store` takes: `ACCESS:SECRET`, or a source that renews itself; None where the store needs none."""
    return named_credentials(site.store.credentials, environ) if site.store.credentials else None


def named_credentials(name: str, environ: Mapping[str, str]) -> "str | CredentialSource":
    """What a reference to a secret or an identity of AWS (`aws:role`) stands for.

    Raises:
        ConfigError: It is neither, the secret is not there, or `minio` is not installed.
    """
    if not grammar.AWS_IDENTITY.fullmatch(name):
        return resolve_secret(name, environ)
    from gangline.storage.s3 import store  # noqa: F401  # says which package is missing
    from gangline.storage.s3.aws_identities import AwsIdentity

    return AwsIdentity(name, environ)


def store_credential_text(site: Site, environ: Mapping[str, str]) -> str | None:
    """`ACCESS:SECRET[:TOKEN]` as of now, for a gang; None where the store needs none.

    Raises:
        ConfigError: As `named_credentials`.
        StorageError: AWS gave none.
    """
    found = store_credentials(site, environ)
    if found is None or isinstance(found, str):
        return found
    from gangline.storage.s3.credentials import credential_text

    return credential_text(found.current())


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
