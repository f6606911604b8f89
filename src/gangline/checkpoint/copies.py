"""One node's copies of checkpoints, in a folder that outlives its ranks: its own ranks' files and those of other nodes.

A folder in memory, laid out as the store is. A node has some files of a checkpoint, the nodes together all of them; the
manifest is the store's own, signature and digests included, so that a copy is verified as what lies in the store is.
Every file gets its name when it is whole. What moves between nodes, and when, is left to `saving_copies` and
`loading_copies`.
"""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from gangline.checkpoint.host_memory import available_bytes
from gangline.errors import StorageError
from gangline.storage.local import FolderStore
from gangline.storage.protocol import list_all


@dataclass(frozen=True, slots=True)
class Copies:
    """Copies of this node; its ranks share it.

    Args:
        folder: In memory, best; it exists, and who made it removes it.
        node: Number of this node in the gang.
        peers: So many other nodes get what this one's ranks save.
    """

    folder: Path
    node: int
    peers: int = 1

    @property
    def store(self) -> FolderStore:
        return FolderStore(self.folder)

    def free_bytes(self) -> int:
        """Room there is now, in the folder and in half the memory that is left; 0 where the folder is gone."""
        try:
            found = os.statvfs(self.folder)
        except OSError:
            return 0
        return min(found.f_bavail * found.f_frsize, available_bytes() // 2)

    def path(self, key: str) -> Path:
        return self.folder / key

    def sizes(self, prefix: str) -> dict[str, dict[str, int]]:
        """Checkpoint folder below `prefix` -> file -> bytes, of all that is whole here."""
        found: dict[str, dict[str, int]] = {}
        for entry in list_all(self.store, f"{prefix}/step-"):
            folder, _, name = entry.key.rpartition("/")
            found.setdefault(folder, {})[name] = entry.size_bytes
        return found

    def write(self, key: str, pieces: Iterable[memoryview | bytes]) -> None:
        """Give `key` these bytes, all or none."""
        target = self.path(key)
        staged = self.folder / f"{target.parent.name}-{target.name}.part"
        try:
            with staged.open("wb") as file:
                file.writelines(pieces)
            target.parent.mkdir(parents=True, exist_ok=True)
            staged.replace(target)
        except OSError as error:
            staged.unlink(missing_ok=True)
            raise StorageError(f"cannot keep a copy in {self.folder}: {error}; the store has its own") from error

    def keep_only(self, prefix: str, kept: dict[str, set[str]]) -> None:
        """Delete what is below `prefix` but the files named, by folder: one generation of one step is enough."""
        for folder, names in self.sizes(prefix).items():
            for name in names.keys() - kept.get(folder, set()):
                self.path(f"{folder}/{name}").unlink(missing_ok=True)
