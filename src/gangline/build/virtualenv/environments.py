"""Cache of virtual environments, made once for each lock and keyed by everything that goes into them.

    ROOT/DIGEST/            a virtual environment; it exists whole or not at all
    ROOT/DIGEST.json        its content and its interpreter, out of reach of its packages; written when it is there
    ROOT/DIGEST.lock        locked by the process that makes it; touched by every use

The digest covers the lock's packages with their hashes, Python, platform and gangline's rank runtime. So equal digests
mean equal files, whatever the origin of the lock: a commit of a fork shares an environment with one of our own only
where both request the same wheels.
"""

import fcntl
import os
import sysconfig
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from secrets import token_hex

from packaging.markers import Marker

from gangline.build.virtualenv import rank_runtime
from gangline.build.virtualenv.installation import Installation, delete_folder, folder_size, install
from gangline.build.virtualenv.interpreters import Interpreter, find_interpreter
from gangline.build.virtualenv.locks import CommitLock, missing_index, read_commit_lock
from gangline.build.virtualenv.uv import Uv
from gangline.errors import ConfigError, storage_errors
from gangline.git.repository import Repository
from gangline.spec.codec import canonical, digest
from gangline.spec.config.line import Line
from gangline.spec.config.lock import Pin
from gangline.spec.config.site import Site
from gangline.spec.python_environment import EnvironmentManifest, find_manifest, manifest_file
from gangline.spec.record import Trust
from gangline.storage.folder.durable_files import replace_file
from gangline.storage.site_paths import cache_folder

FOLDER = "environments"
VERSION = 2
"""Version of the way in which environments are made."""


@dataclass(frozen=True, kw_only=True, slots=True)
class VirtualEnvironment:
    """A complete environment."""

    digest: str
    folder: Path
    lock: str
    """Name of the lock in its commit."""
    manifest: EnvironmentManifest
    is_cached: bool = True

    @property
    def python(self) -> str:
        """Path of its interpreter."""
        return str(self.folder / "bin" / "python")

    @property
    def source(self) -> str:
        """Where it comes from, for people."""
        count = _format_packages(len(self.manifest.packages) - len(self.manifest.added))
        source = f"{self.lock}: {count}, Python {self.manifest.python}"
        return f"{source}, cached" if self.is_cached else f"{source}, installed in {self.manifest.seconds:.1f} s"


@dataclass(frozen=True, kw_only=True, slots=True)
class EnvironmentRequest:
    """What an environment consists of; known before the environment exists."""

    lock: CommitLock
    interpreter: Interpreter
    pins: tuple[Pin, ...]
    """Those for this Python and machine."""
    runtime: rank_runtime.RankRuntime
    missing: tuple[rank_runtime.RuntimePackage, ...]
    """Packages of the runtime that the lock does not have."""

    @property
    def digest(self) -> str:
        """Digest of everything that decides what is installed."""
        return digest({
            "lock": sha256(self.lock.requirements).hexdigest(), "python": self.interpreter.version,
            "platform": sysconfig.get_platform(), "runtime": self.runtime.digest, "version": VERSION,
        })  # fmt: skip


@dataclass(frozen=True, kw_only=True, slots=True)
class LockedCommit:
    """A commit, and its line that names the lock."""

    repository: Repository
    tree: str
    line: Line
    trust: Trust


def environments_folder(environ: Mapping[str, str], home: Path) -> Path:
    """Folder of the environments of all repositories of this user; in `home` where the user has no cache folder."""
    return (cache_folder(environ, home) / FOLDER).absolute()


def find_or_make_environment(
    commit: LockedCommit, *, site: Site, environ: Mapping[str, str], home: Path, with_s3: bool,
    notify: Callable[[str], None], before_install: Callable[[], None] = lambda: None,
) -> VirtualEnvironment | None:  # fmt: skip
    """The environment of a commit in the user's cache; None where the line names no lock.

    Args:
        commit: The commit.
        site: Names the package indexes.
        environ: Of the driver.
        home: `.gangline` folder of the repository.
        with_s3: The ranks use a store that is a server.
        notify: Receives a sentence before each step that takes seconds.
        before_install: Called before anything is installed; an exception stops the installation.

    Raises:
        ConfigError, IntegrityError, StorageError, BuildError: As `request_environment` and `make_environment`.
    """
    if commit.line.env.lock is None:
        return None
    uv = Uv.find(environ, site, is_own=commit.trust == "own")
    lock = read_commit_lock(commit.repository, commit.tree, commit.line.env, uv)
    assert lock is not None, "the line names one"
    request = request_environment(lock, uv=uv, for_task=commit.line.project.task is not None, with_s3=with_s3)
    root = environments_folder(environ, home)
    if environment := find_environment(request, root):
        return environment
    before_install()
    return make_environment(request, root, uv=uv, notify=notify)


def request_environment(lock: CommitLock, *, uv: Uv, for_task: bool, with_s3: bool) -> EnvironmentRequest:
    """Raises ConfigError for a lock of another Python, or one that conflicts with the rank runtime."""
    interpreter = find_interpreter(lock.requires_python, uv=uv, file=lock.file)
    pins = tuple(pin for pin in lock.pins if not pin.marker or Marker(pin.marker).evaluate(interpreter.markers))
    locked = {pin.name: pin.version for pin in pins}
    if "gangline" in locked:
        raise ConfigError(f"env.lock: {lock.file} has a gangline of its own; leave it out, ranks get the driver's")
    if for_task:
        rank_runtime.require_torch(locked, file=lock.file)
    runtime = rank_runtime.rank_runtime_of(with_s3=with_s3)
    missing = runtime.missing(locked, file=lock.file)
    return EnvironmentRequest(lock=lock, interpreter=interpreter, pins=pins, runtime=runtime, missing=missing)


def find_environment(request: EnvironmentRequest, root: Path) -> VirtualEnvironment | None:
    """The environment if it is complete; this counts as a use of it."""
    folder = root / request.digest
    manifest = find_manifest(folder)
    if manifest is None or not (folder / "bin" / "python").exists():  # the base interpreter may have been removed
        return None
    with suppress(OSError):
        os.utime(_lock_file(folder))
    return VirtualEnvironment(digest=request.digest, folder=folder, lock=request.lock.file, manifest=manifest)


def make_environment(
    request: EnvironmentRequest, root: Path, *, uv: Uv, notify: Callable[[str], None]
) -> VirtualEnvironment:
    """Make the environment unless it exists; waits for another process that is making it.

    Raises:
        ConfigError: A package has no wheel for this Python, or no index has it.
        IntegrityError: A wheel does not have the hash of the lock.
        StorageError: No index answers, or the disk is full; the partial environment is deleted.
    """
    folder = root / request.digest
    if environment := find_environment(request, root):
        return environment
    lock = request.lock.file
    with storage_errors(root):
        root.mkdir(parents=True, exist_ok=True)
        with _locked(folder, lambda: notify(f"waiting for another run that installs {lock}")):
            if environment := find_environment(request, root):
                return environment
            _delete(folder)
            draft = root / f".{request.digest}.{token_hex(4)}"
            count = _format_packages(len(request.pins))
            notify(f"installing {count} of {lock}, for Python {request.interpreter.version}")
            try:
                manifest = install(_installation(request, draft, folder), uv=uv, notify=notify)
                draft.rename(folder)
                replace_file(manifest_file(folder), canonical(manifest), durable=False)
            except ConfigError as error:
                said = missing_index(request.lock, str(error), known=uv.indexes)
                raise (ConfigError(said) if said else error) from error
            finally:
                delete_folder(draft)
    return VirtualEnvironment(digest=request.digest, folder=folder, lock=lock, manifest=manifest, is_cached=False)


def _installation(request: EnvironmentRequest, draft: Path, folder: Path) -> Installation:
    return Installation(
        draft=draft, folder=folder, lock=request.lock.file, interpreter=request.interpreter, pins=request.pins,
        runtime=request.missing,
    )  # fmt: skip


def _delete(folder: Path) -> None:
    """Delete an environment, and what killed processes left of its making."""
    manifest_file(folder).unlink(missing_ok=True)
    delete_folder(folder)
    _delete_drafts(folder)


def _delete_drafts(folder: Path) -> None:
    for path in folder.parent.glob(f".{folder.name}.*"):
        delete_folder(path)


@contextmanager
def _locked(folder: Path, on_wait: Callable[[], None]) -> Iterator[None]:
    with _lock_file(folder).open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            on_wait()
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _lock_file(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.lock")


def _format_packages(count: int) -> str:
    return "1 package" if count == 1 else f"{count} packages"


@dataclass(frozen=True, kw_only=True, slots=True)
class UnusedEnvironment:
    """An environment that a sweep examined."""

    digest: str
    size_bytes: int
    """Including files that it shares with uv's cache."""
    days: float
    """Days since the last use."""
    is_over: bool
    """It was unused for too long."""
    deleted: bool


def sweep_environments(root: Path, *, keep_seconds: float, dry_run: bool) -> list[UnusedEnvironment]:
    """Delete environments without a use for `keep_seconds`, and drafts of killed processes; skip those being made."""
    environments = []
    for lock in sorted(root.glob("*.lock")):
        folder = lock.with_suffix("")
        with lock.open("ab") as file, suppress(BlockingIOError, FileNotFoundError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            idle = time.time() - lock.stat().st_mtime
            is_over = idle > keep_seconds
            if folder.exists():
                environments.append(
                    UnusedEnvironment(
                        digest=folder.name, size_bytes=_recorded_size(folder), days=idle / 86400, is_over=is_over,
                        deleted=is_over and not dry_run,
                    )
                )  # fmt: skip
            if not dry_run:
                (_delete if is_over else _delete_drafts)(folder)
    return environments


def _recorded_size(folder: Path) -> int:
    manifest = find_manifest(folder)
    return folder_size(folder) if manifest is None else manifest.size_bytes
