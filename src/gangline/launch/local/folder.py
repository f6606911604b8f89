"""The folder of a local gang: its files by name, what they say.

Their layout stands in `spec.gang`; `launch.json` and `lock` are this room's own.
"""

import fcntl
import json
import os
import secrets
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from gangline.spec.codec import canonical, from_json
from gangline.spec.gang import GangEnd, KeeperStatus
from gangline.spec.podset import PodSet


@dataclass(frozen=True, kw_only=True, slots=True)
class Process:
    """A process for ever: a pid alone is used again."""

    pid: int
    start_time: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Launched:
    """Written once the keepers run."""

    uid: str
    keepers: tuple[Process, ...]
    control_port: int | None = None
    """Where the keepers of several virtual nodes meet."""


@dataclass(frozen=True, slots=True)
class GangFolder:
    """The files of a gang of this machine."""

    home: Path

    @property
    def exists(self) -> bool:
        return (self.home / "podset.json").exists()

    def lock(self) -> AbstractContextManager[None]:
        """One launcher at a time changes this folder; a dead one holds nothing."""
        return self._locked("lock")

    def keepers_lock(self) -> AbstractContextManager[None]:
        """Who says that a keeper is gone, and who puts another in its place, exclude each other; may be taken in
        `lock`."""
        return self._locked("keepers.lock")

    @contextmanager
    def _locked(self, name: str) -> Iterator[None]:
        self.home.mkdir(parents=True, exist_ok=True)
        with (self.home / name).open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def podset(self) -> PodSet:
        return PodSet.from_json((self.home / "podset.json").read_bytes())

    def ranks(self) -> set[int]:
        """All that ever wrote a log here."""
        return {int(path.stem) for path in (self.home / "logs").glob("*.log") if path.stem.isdecimal()}

    def launched(self) -> Launched | None:
        data = _read(self.home / "launch.json")
        return from_json(Launched, data) if data else None

    def keeper(self, node: int) -> KeeperStatus | None:
        """What the keeper of a node last said."""
        data = _read(self.home / f"keeper-{node}.json")
        return from_json(KeeperStatus, data) if data else None

    def end(self, node: int) -> GangEnd | None:
        data = _read(self.home / f"exit-{node}.json")
        return from_json(GangEnd, data) if data else None

    def cancelled(self) -> str | None:
        """Why somebody cancelled it."""
        data = _read(self.home / "cancel.json")
        return str(json.loads(data)["reason"]) if data else None

    def rank_events(self, rank: int) -> Path:
        return self.home / "out" / "ranks" / f"{rank}.jsonl"

    def keeper_events(self, node: int) -> Path:
        return self.home / f"keeper-{node}.jsonl"

    def log(self, name: str | int) -> Path:
        return self.home / "logs" / f"{name}.log"

    def write(self, name: str, value: object) -> None:
        """Put a file there as a whole, durably."""
        write_file(self.home / name, canonical(value), mode=0o644)


def write_file(path: Path, data: bytes, *, mode: int) -> None:
    """By rename: a reader sees nothing or all of it, with `mode` from the first byte on."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    with os.fdopen(handle, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
