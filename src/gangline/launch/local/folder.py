"""The folder of a local gang: its files by name and content, and outputs in it that nobody collected yet.

The layout of the gang's own files is in `spec.gang`; `launch.json` and `lock` are this room's. A gang in a sandbox
writes below `gang/` alone, which is its GANGLINE_HOME, and all else here is out of its reach:

    podset.json  launch.json  lock  keepers.lock  cancel.json  secrets/  logs/keeper-<node>.log   the launcher's
    gang/                                                                                         the gang's

What the gang wrote is not trusted: no link is followed, no pipe is read.
"""

import fcntl
import json
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from gangline.errors import IntegrityError
from gangline.sanitize import concealable
from gangline.spec.codec import canonical, from_json
from gangline.spec.config.secrets import VARIABLE
from gangline.spec.gang.podset import PodSet
from gangline.spec.gang.status import GangEnd, KeeperStatus
from gangline.spec.program_files import IGNORED_FOLDER, OUTPUTS, Outputs
from gangline.storage.folder.safe_paths import read_below

T = TypeVar("T")
SANDBOXED = "gang"
"""Folder of a gang in a sandbox, in its own."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Process:
    """A process for ever: a pid alone is used again."""

    pid: int
    start_time: int
    parent: int | None = None
    """Of a keeper in a sandbox: the process that holds it, a child of who started both."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LaunchedGang:
    """Written once the keepers run."""

    uid: str
    keepers: tuple[Process, ...]
    commands: tuple[tuple[str, ...], ...] = ()
    """Of keepers in a sandbox: how each was started; empty: in none."""
    control_port: int | None = None
    """Where the keepers of several virtual nodes meet."""


@dataclass(frozen=True, slots=True)
class GangFolder:
    """The files of a gang of this machine."""

    home: Path

    @property
    def exists(self) -> bool:
        return (self.home / "podset.json").exists()

    @property
    def inside(self) -> Path:
        """What the gang writes: of a gang in a sandbox a folder of its own."""
        own = self.home / SANDBOXED
        return own if own.is_dir() else self.home

    @property
    def secrets(self) -> Path:
        return self.home / "secrets"

    def lock(self) -> AbstractContextManager[None]:
        """One launcher at a time changes this folder; a dead one holds nothing."""
        self.home.mkdir(parents=True, exist_ok=True)
        return self._locked("lock")

    def keepers_lock(self) -> AbstractContextManager[None]:
        """Who says that a keeper is gone, and who puts another in its place, exclude each other; may be taken in
        `lock`. Raises FileNotFoundError where the folder was deleted."""
        return self._locked("keepers.lock")

    @contextmanager
    def _locked(self, name: str) -> Iterator[None]:
        with (self.home / name).open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def podset(self) -> PodSet:
        return PodSet.from_json((self.home / "podset.json").read_bytes())

    def ranks(self) -> set[int]:
        """All that ever wrote a log here."""
        return {int(path.stem) for path in (self.inside / "logs").glob("*.log") if path.stem.isdecimal()}

    def launched(self) -> LaunchedGang | None:
        data = _read(self.home / "launch.json")
        return from_json(LaunchedGang, data) if data else None

    def keeper(self, node: int) -> KeeperStatus | None:
        """What the keeper of a node last said; its process ids are those of its sandbox."""
        return self._document(KeeperStatus, f"keeper-{node}.json")

    def end(self, node: int) -> GangEnd | None:
        return self._document(GangEnd, f"exit-{node}.json")

    def cancelled(self) -> str | None:
        """Why somebody cancelled it."""
        data = _read(self.home / "cancel.json")
        return str(json.loads(data)["reason"]) if data else None

    def rank_events(self, rank: int) -> Path:
        return self.inside / "out" / "ranks" / f"{rank}.jsonl"

    def keeper_events(self, node: int) -> Path:
        return self.inside / f"keeper-{node}.jsonl"

    def log(self, rank: int) -> Path:
        return self.inside / "logs" / f"{rank}.log"

    def secret_values(self) -> tuple[str, ...]:
        """Of the variables that are secret, and their single lines; none once the gang was collected."""
        values = [path.read_text("utf-8") for path in self.secrets.glob(f"{VARIABLE}*")]
        return concealable(each for value in values for each in (value, *value.splitlines()))

    def keeper_log(self, node: int) -> Path:
        return self.home / "logs" / f"keeper-{node}.log"

    def read_inside(self, path: Path, start: int = 0) -> bytes | None:
        """What the gang wrote at `path`, from byte `start` on; None: nothing, or nothing that may be read."""
        return read_below(self.inside, path, start=start)

    def _document(self, kind: type[T], name: str) -> T | None:
        """None: there is none. Ranks of a gang in a sandbox may have written anything: that is none, too."""
        data = self.read_inside(self.inside / name)
        try:
            return from_json(kind, data) if data else None
        except IntegrityError:
            if self.inside == self.home:
                raise
            return None

    def write(self, name: str, value: object) -> None:
        """Put a file of the launcher there as a whole, durably."""
        write_file(self.home / name, canonical(value), mode=0o644)

    def write_inside(self, name: str, value: object) -> None:
        """Put a file there as a whole, where the gang looks for it."""
        write_file(self.inside / name, canonical(value), mode=0o644)


def write_file(path: Path, data: bytes, *, mode: int, owner: tuple[int, int] | None = None) -> None:
    """By rename: a reader sees nothing or all of it, with `mode` and `owner` from the first byte on."""
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


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


@dataclass(frozen=True, slots=True)
class UncollectedOutputs:
    """Files that go with the folder."""

    files: int = 0
    size_bytes: int = 0


def find_uncollected(folder: GangFolder) -> UncollectedOutputs:
    """Files younger than the gang, which the code layer is not, but for those that its collector lists."""
    collected, code = _collected(folder), folder.inside / "code"
    began = (folder.home / "podset.json").stat().st_mtime_ns
    files = size = 0
    for root, folders, names, handle in os.fwalk(code, follow_symlinks=False):
        folders[:] = [each for each in folders if each != IGNORED_FOLDER]
        for name in names:
            with suppress(FileNotFoundError):
                found = os.stat(name, dir_fd=handle, follow_symlinks=False)
                path = Path(root, name).relative_to(code).as_posix()
                is_new = stat.S_ISREG(found.st_mode) and found.st_mtime_ns > began
                if is_new and collected.get(path) != found.st_size:
                    files, size = files + 1, size + found.st_size
    return UncollectedOutputs(files, size)


def _collected(folder: GangFolder) -> dict[str, int]:
    """Size by path of what the gang says lies in the store."""
    data = folder.read_inside(folder.inside / OUTPUTS)
    try:
        listed = Outputs.from_json(data) if data else None
    except IntegrityError:
        listed = None
    if listed is None:
        return {}
    return {file.path: file.size_bytes for file in (*listed.files, *([listed.metrics] if listed.metrics else ()))}
