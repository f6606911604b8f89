"""Folder of a local gang: its files by name and content, and the outputs in it that were not collected yet.

The layout of the gang's own files is in `spec.gang`; `launch.json` and `lock` are this room's. A gang in a sandbox
writes below `gang/` alone, which is its GANGLINE_HOME, and all else here is out of its reach:

    podset.json  launch.json  lock  keepers.lock  cancel.json  secrets/  logs/keeper-<node>.log   the launcher's
    gang/  tmp/  home/                                                                            the gang's

What the gang wrote is not trusted: no link is followed, no pipe is read. Whatever a sandbox mounts lies next to `gang/`
and not in it: a start of a keeper would follow a link that a rank has put in its place.
"""

import fcntl
import json
import os
import secrets
import stat
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

from gangline.errors import IntegrityError
from gangline.sanitize import concealable
from gangline.spec.codec import canonical, from_json
from gangline.spec.config.secrets import VARIABLE
from gangline.spec.gang.driver_orders import SOURCE_SECRET
from gangline.spec.gang.podset import PodSet
from gangline.spec.gang.status import GangEnd, KeeperStatus
from gangline.spec.program_files import IGNORED_FOLDER, OUTPUTS, Outputs
from gangline.storage.folder.safe_paths import read_below

T = TypeVar("T")
SANDBOXED = "gang"
"""Folder of a gang in a sandbox, in its own."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Process:
    """A process by pid and start time, as pids are reused."""

    pid: int
    start_time: int
    parent: int | None = None
    """Process that started the sandbox of a keeper in one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LaunchedGang:
    """The running keepers of a gang; written once they run."""

    uid: str
    keepers: tuple[Process, ...]
    commands: tuple[tuple[str, ...], ...] = ()
    """Command line of each keeper in a sandbox; empty: no sandbox."""


@dataclass(frozen=True, slots=True)
class GangFolder:
    """The files of a gang of this machine."""

    home: Path

    @property
    def exists(self) -> bool:
        """Whether a gang was submitted here."""
        return (self.home / "podset.json").exists()

    @property
    def inside(self) -> Path:
        """Folder that the gang may write; a subfolder for a gang in a sandbox."""
        own = self.home / SANDBOXED
        return own if own.is_dir() else self.home

    @property
    def tmp(self) -> Path:
        """Folder that a gang in a sandbox has as its `/tmp`."""
        return self.home / "tmp"

    @property
    def own_home(self) -> Path:
        """Home of a gang in a sandbox that has none which is kept."""
        return self.home / "home"

    @property
    def secrets(self) -> Path:
        return self.home / "secrets"

    def lock(self) -> AbstractContextManager[None]:
        """Lock for changes of this folder by launchers; it is released if the process dies."""
        self.home.mkdir(parents=True, exist_ok=True)
        return self._locked("lock")

    def keepers_lock(self) -> AbstractContextManager[None]:
        """Lock for declaring a keeper dead and for replacing it; may be taken inside `lock`.

        Raises FileNotFoundError if the folder was deleted.
        """
        return self._locked("keepers.lock")

    @contextmanager
    def _locked(self, name: str) -> Iterator[None]:
        with (self.home / name).open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def podset(self) -> PodSet:
        """The PodSet of the gang."""
        return _parsed(PodSet, (self.home / "podset.json").read_bytes())

    def ranks(self) -> set[int]:
        """Ranks that have written a log."""
        return {int(path.stem) for path in (self.inside / "logs").glob("*.log") if path.stem.isdecimal()}

    def launched(self) -> LaunchedGang | None:
        """Processes of the keepers; None: they were not started."""
        data = _read(self.home / "launch.json")
        return _parsed(LaunchedGang, data) if data else None

    def keeper(self, node: int) -> KeeperStatus | None:
        """Last status of the keeper of `node`; process ids are those inside its sandbox."""
        return self._document(KeeperStatus, f"keeper-{node}.json")

    def end(self, node: int) -> GangEnd | None:
        """How the keeper of `node` ended; None: it runs, or died before it could write it."""
        return self._document(GangEnd, f"exit-{node}.json")

    def cancel(self, *, reason: str, save: bool) -> None:
        """Tell its keepers, unless an earlier cancellation has; the caller holds the lock."""
        if self.cancelled() is None:
            self.write("cancel.json", {"reason": reason, "save": save})
            if self.inside != self.home:
                self.write_inside("cancel.json", {"reason": reason, "save": save})

    def cancelled(self) -> str | None:
        """Reason of a cancellation; None: not cancelled."""
        data = _read(self.home / "cancel.json")
        return str(json.loads(data)["reason"]) if data else None

    def rank_events(self, rank: int) -> Path:
        """Event file of `rank`, as JSON lines."""
        return self.inside / "out" / "ranks" / f"{rank}.jsonl"

    def keeper_events(self, node: int) -> Path:
        """Event file of the keeper of `node`, as JSON lines."""
        return self.inside / f"keeper-{node}.jsonl"

    def log(self, rank: int) -> Path:
        """Log of `rank`."""
        return self.inside / "logs" / f"{rank}.log"

    def secret_values(self) -> tuple[str, ...]:
        """Values of secret variables, whole and by line, to be concealed; empty once the gang was collected."""
        named = (path for start in (VARIABLE, SOURCE_SECRET) for path in self.secrets.glob(f"{start}*"))
        values = [path.read_text("utf-8") for path in named]
        return concealable(each for value in values for each in (value, *value.splitlines()))

    def keeper_log(self, node: int) -> Path:
        """Log of the keeper of `node`."""
        return self.home / "logs" / f"keeper-{node}.log"

    def read_inside(self, path: Path) -> bytes | None:
        """Content of a file of the gang; None: it does not exist or is not a plain file."""
        return read_below(self.inside, path)

    def _document(self, kind: type[T], name: str) -> T | None:
        """None: there is no such file, or a gang in a sandbox wrote an invalid one."""
        data = self.read_inside(self.inside / name)
        try:
            return _parsed(kind, data) if data else None
        except IntegrityError:
            if self.inside == self.home:
                raise
            return None

    def write(self, name: str, value: object) -> None:
        """Write a file of the launcher atomically and durably."""
        write_file(self.home / name, canonical(value), mode=0o644)

    def write_inside(self, name: str, value: object) -> None:
        """Write a file for the gang atomically and durably."""
        write_file(self.inside / name, canonical(value), mode=0o644)


def write_file(path: Path, data: bytes, *, mode: int, owner: tuple[int, int] | None = None) -> None:
    """Write by rename: a reader sees the whole file or none, with `mode` and `owner` from the start."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    with os.fdopen(handle, "wb") as file:
        if owner is not None and os.geteuid() == 0:
            os.fchown(handle, *owner)
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)


_kept_from_json: Callable[..., Any] = lru_cache(maxsize=64)(from_json)
"""Documents are frozen, and a follower reads the same bytes ten times a second."""


def _parsed(kind: type[T], data: bytes) -> T:
    """Raises IntegrityError as `from_json` does."""
    document: T = _kept_from_json(kind, data)
    return document


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


@dataclass(frozen=True, slots=True)
class _UncollectedOutputs:
    """Files that would be deleted with the folder."""

    files: int = 0
    size_bytes: int = 0


def find_uncollected(folder: GangFolder) -> _UncollectedOutputs:
    """Files newer than the gang that its collector does not list as stored; the code layer is older."""
    collected, code = _collected(folder), folder.inside / "code"
    began = (folder.home / "podset.json").stat().st_mtime_ns
    files = size = 0
    for root, folders, names, handle in os.fwalk(code, follow_symlinks=False):
        folders[:] = [each for each in folders if each != IGNORED_FOLDER]
        for name in names:
            with suppress(FileNotFoundError):
                status = os.stat(name, dir_fd=handle, follow_symlinks=False)
                path = Path(root, name).relative_to(code).as_posix()
                is_new = stat.S_ISREG(status.st_mode) and status.st_mtime_ns > began
                if is_new and collected.get(path) != status.st_size:
                    files, size = files + 1, size + status.st_size
    return _UncollectedOutputs(files, size)


def _collected(folder: GangFolder) -> dict[str, int]:
    """Size by path of the files that the gang lists as stored."""
    data = folder.read_inside(folder.inside / OUTPUTS)
    try:
        listed = Outputs.from_json(data) if data else None
    except IntegrityError:
        listed = None
    if listed is None:
        return {}
    return {file.path: file.size_bytes for file in (*listed.files, *([listed.metrics] if listed.metrics else ()))}
