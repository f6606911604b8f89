"""The workspace of a command: a model repository, its site and its store. Reads the process environment, once."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from gangline.errors import ConfigError, UsageError
from gangline.line.record import runs
from gangline.spec.config.load import HOW_TO_BEGIN, load_site
from gangline.spec.config.site import Site
from gangline.spec.record import Record
from gangline.spec.run_flags import stopped_early
from gangline.storage import site_paths
from gangline.storage.objects.protocol import ObjectStore

if TYPE_CHECKING:
    from gangline.fabric.topology.inventory import Fabric

_MARKS = ("line.toml", ".gangline")


@dataclass(frozen=True)
class Workspace:
    """A repository and its site."""

    repo: Path
    site: Site
    environ: Mapping[str, str]

    @cached_property
    def store(self) -> ObjectStore:
        """Store of the site."""
        return site_paths.open_site_store(self.repo, self.site, self.environ)

    def run(self, run: str | None) -> Record:
        """The record of a run id or of the unique beginning of one; None: the newest that was not cut short."""
        if run is not None:
            return runs.find_run(self.store, run)
        records = runs.list_runs(self.store)
        newest = max(records, key=lambda r: (not stopped_early(r), r.run.created, r.run.attempt), default=None)
        if newest is None:
            raise UsageError(f"wanted a run in {self.store.url}, found none; gangline run makes one")
        return newest


def open_workspace(repo: Path, site_file: Path | None, *, anywhere: bool = False, logs: bool = True) -> Workspace:
    """The repository at or above `repo`, with its site.

    Args:
        anywhere: Any folder will do, as for a command that opens no store.
        logs: Set up now; false saves 0.1 s of imports where nothing is logged, or the caller does it.

    Raises:
        ConfigError: No repository here, though the site keeps its store inside one; or a wrong site.toml.
        UsageError: There is no such folder.
    """
    environ = os.environ
    if logs:
        from gangline.cli.log_setup import set_up_logs

        set_up_logs(environ)
    if not repo.is_dir():
        raise UsageError(f"wanted a folder, found {'a file' if repo.exists() else 'nothing'} at {repo}")
    site = load_site(site_file, environ=environ)
    root = find_repo(repo.resolve())
    if root is None and not anywhere and _store_is_inside(site):
        raise ConfigError(
            f"wanted line.toml in {repo.resolve()} or a folder above, found none; "
            f"{HOW_TO_BEGIN}; run this inside of it, or name its folder"
        )
    return Workspace(root or repo.resolve(), site, environ)


def stated_fabric(file: Path | None) -> "Fabric | None":
    """The fabric of `file`, of GANGLINE_FABRIC, the user's or the system's; None: there is none."""
    from gangline.line.gangs.stated_network import stated_network

    return stated_network(os.environ, file)


def find_repo(start: Path) -> Path | None:
    """The nearest folder from `start` up to the top of its git work tree that holds line.toml or records."""
    top = next((folder for folder in (start, *start.parents) if (folder / ".git").exists()), None)
    for folder in (start, *start.parents):
        if any((folder / mark).exists() for mark in _MARKS) or folder == top:
            return folder
        if top is None:
            return None
    return None


def _store_is_inside(site: Site) -> bool:
    url = site.store.url
    return url.startswith("file:") and not Path(url.removeprefix("file:")).expanduser().is_absolute()
