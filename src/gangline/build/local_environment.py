"""Environment of a commit on this machine, built from its lock in the user's cache."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from gangline.build.venv import FOLDER, Uv, VirtualEnvironment, ask_environment, find_environment, make_environment
from gangline.build.venv.locks import read_commit_lock
from gangline.git.repository import Repository
from gangline.spec.config.line import Line
from gangline.spec.config.site import Site
from gangline.spec.record import Trust
from gangline.storage.site_paths import cache_folder


@dataclass(frozen=True, kw_only=True, slots=True)
class LockOf:
    """The commit whose lock it is."""

    repository: Repository
    tree: str
    line: Line
    trust: Trust


def root_of(environ: Mapping[str, str], home: Path) -> Path:
    """Folder of the environments of all repositories of this user."""
    return (cache_folder(environ, home) / FOLDER).absolute()


def local_environment(
    of: LockOf, *, site: Site, environ: Mapping[str, str], home: Path, with_s3: bool, say: Callable[[str], None],
    before: Callable[[], None] = lambda: None,
) -> VirtualEnvironment | None:  # fmt: skip
    """The environment, made now where it was not yet; None where the line names no lock.

    Args:
        of: The commit.
        site: Says where packages come from.
        environ: Of the driver.
        home: Of the repository, where nobody knows the user's cache.
        with_s3: The store of its ranks is a server.
        say: Told what takes seconds.
        before: Called before anything is installed; what it raises stops that.

    Raises:
        ConfigError, IntegrityError, StorageError, BuildError: As `build.venv` says.
    """
    if of.line.env.lock is None:
        return None
    uv = Uv.find(environ, site, is_own=of.trust == "own")
    lock = read_commit_lock(of.repository, of.tree, of.line.env, uv)
    assert lock is not None, "the line names one"
    asked = ask_environment(lock, uv=uv, for_task=of.line.project.task is not None, with_s3=with_s3)
    root = root_of(environ, home)
    if found := find_environment(asked, root):
        return found
    before()
    return make_environment(asked, root, uv=uv, say=say)
