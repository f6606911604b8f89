"""Copies of checkpoints on one node, in a folder in memory that outlives its ranks, and the memory left for them.

The folder is laid out as the store. A node has some files of a checkpoint, all nodes together have all of them; the
manifest is that of the store with its signature and digests, so copies are verified as files in the store are. A file
gets its name when it is complete. Transfers between nodes: `pending_save`, `sources`.
"""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from gangline.errors import StorageError
from gangline.storage.folder.store import FolderStore
from gangline.storage.objects.protocol import list_all

_GROUPS = (
    (Path("/sys/fs/cgroup"), "memory.max", "memory.current", "inactive_file"),
    (Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)
"""Files of both versions of control groups: limit, use, and the field of reclaimable bytes."""


def available_bytes() -> int:
    """Memory available on the machine, or left in the control group if that is less."""
    return max(0, min([_field(Path("/proc/meminfo"), "MemAvailable:") * 1024, *_left_in_groups()]))


def _left_in_groups() -> list[int]:
    left = []
    for root, limit, used, reclaimable in _GROUPS:
        for folder in {root, *(root / path for path in _own_paths())}:
            bound, use = _number(folder / limit), _number(folder / used)
            if bound is not None and use is not None:
                left.append(bound - use + _field(folder / "memory.stat", reclaimable))
    return left


def _own_paths() -> list[str]:
    lines = [line.split(":", 2) for line in _lines(Path("/proc/self/cgroup"))]
    return [path.lstrip("/") for _, controllers, path in lines if controllers in ("", "memory")]


def _number(path: Path) -> int | None:
    """None: no file, or no limit."""
    text = next(iter(_lines(path)), "")
    return int(text) if text.isdecimal() else None


def _field(path: Path, name: str) -> int:
    return next((int(line.split()[1]) for line in _lines(path) if line.split()[:1] == [name]), 0)


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []


@dataclass(frozen=True, slots=True)
class NodeCopies:
    """Copies of this node, shared by its ranks.

    Args:
        folder: Exists, in memory if possible; its creator removes it.
        node: Number of this node in the gang.
        peers: Number of other nodes that get what this one's ranks save.
    """

    folder: Path
    node: int
    peers: int = 1

    @property
    def store(self) -> FolderStore:
        """The folder as a store."""
        return FolderStore(self.folder)

    def free_bytes(self) -> int:
        """Bytes that fit now, in the folder and in half of the available memory; 0 if the folder is gone."""
        try:
            disk = os.statvfs(self.folder)
        except OSError:
            return 0
        return min(disk.f_bavail * disk.f_frsize, available_bytes() // 2)

    def path(self, key: str) -> Path:
        return self.folder / key

    def sizes(self, prefix: str) -> dict[str, dict[str, int]]:
        """Checkpoint folder below `prefix` -> file -> bytes, of all complete files."""
        found: dict[str, dict[str, int]] = {}
        for entry in list_all(self.store, f"{prefix}/step-"):
            folder, _, name = entry.key.rpartition("/")
            found.setdefault(folder, {})[name] = entry.size_bytes
        return found

    def write(self, key: str, pieces: Iterable[memoryview | bytes]) -> None:
        """Write `key` atomically."""
        target = self.path(key)
        staged = self.folder / f"{target.parent.name}-{target.name}.part"
        try:
            with staged.open("wb") as file:
                file.writelines(pieces)
            target.parent.mkdir(parents=True, exist_ok=True)
            staged.replace(target)
        except OSError as error:
            staged.unlink(missing_ok=True)
            raise StorageError(
                f"cannot write a copy to {self.folder}: {error}; the store gets the checkpoint without one"
            ) from error

    def keep_only(self, prefix: str, kept: dict[str, set[str]]) -> None:
        """Delete all files below `prefix` but those named, by folder: one generation of one step is enough."""
        for folder, names in self.sizes(prefix).items():
            for name in names.keys() - kept.get(folder, set()):
                self.path(f"{folder}/{name}").unlink(missing_ok=True)
