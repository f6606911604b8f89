"""Files that a program of its own wants back after a restart: any bytes, under a signed manifest as checkpoints have.

    runs/.../program/step-00000200/g0003-state.npz     the file `state.npz`, by generation 3
                                   manifest.json       last; a save without one never was

Read back only after the signature and every digest held; the newest save that verifies counts. No torch.
"""

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path

from gangline.checkpoint.envelope import (
    BLOCK_BYTES,
    FILES_FORMAT,
    MANIFEST,
    FileEntry,
    Manifest,
    checkpoint_folder,
    list_checkpoints,
)
from gangline.checkpoint.envelope import read_manifest as read_verified
from gangline.checkpoint.refused import Refused
from gangline.checkpoint.retention import retain
from gangline.checkpoint.sealing import seal
from gangline.errors import IntegrityError, StorageError, UsageError
from gangline.storage.protocol import ObjectStore

_MOST_BYTES = 8 * 2**30


class ProgramSaves:
    """One rank's view of the saves below `prefix`; local, rank 0 alone writes."""

    def __init__(
        self, store: ObjectStore, prefix: str, *, run: str, plan_digest: str, generation: int, key: bytes, keep: int
    ) -> None:
        self._store, self._prefix, self._key, self._keep = store, prefix, key, keep
        self._run, self._plan_digest, self._generation = run, plan_digest, generation

    def save(self, step: int, files: Mapping[str, bytes]) -> str:
        """Write `files` by name; durable when it returns. Its folder in the store.

        Raises:
            UsageError: A name is no plain file name, or there is nothing to save.
            StorageError: The store failed; older saves stand.
        """
        folder = checkpoint_folder(self._prefix, step)
        entries = {self._name(name): _entry(data) for name, data in files.items()}
        if not entries:
            raise UsageError("a save wants at least one file: program.save({'state.npz': data})")
        manifest = Manifest(
            format=FILES_FORMAT, run=self._run, step=step, generation=self._generation,
            plan_sha256=self._plan_digest, files=entries,
        )  # fmt: skip
        for name, data in files.items():
            self._store.put(f"{folder}/{self._name(name)}", data)
        seal(self._store, folder, manifest, self._key)
        retain(self._store, self._prefix, self._key, keep=self._keep)
        return folder

    def restore(self, into: Path, *, on_refused: Callable[[str, str], None]) -> int | None:
        """Bring the newest good save into the folder `into`, under the names it was given; its step. None: no save.

        Raises:
            IntegrityError: There are saves, and all were refused.
        """
        refused = []
        for found in list_checkpoints(self._store, self._prefix):
            try:
                files = self._read(found.prefix)
            except Refused as error:
                refused.append(f"{found.prefix}/{error}")
                on_refused(f"{found.prefix}/{error.file}", error.reason)
                continue
            into.mkdir(parents=True, exist_ok=True)
            for name, data in files.items():
                (into / name).write_bytes(data)
            return found.step
        if refused:
            raise IntegrityError(f"none of {len(refused)} saves below {self._prefix} may be used: {'; '.join(refused)}")
        return None

    def _read(self, folder: str) -> dict[str, bytes]:
        manifest = read_verified(self._store, folder, self._key)
        if manifest.format != FILES_FORMAT:
            raise Refused(MANIFEST, f"wanted a save of a program, found {manifest.format}")
        return {name.partition("-")[2]: self._verified(folder, name, each) for name, each in manifest.files.items()}

    def _verified(self, folder: str, name: str, entry: FileEntry) -> bytes:
        blob = self._store.get(f"{folder}/{name}")
        if blob is None:
            raise Refused(name, "the manifest lists it, the store has no such file")
        if len(blob.data) != entry.size_bytes or _entry(blob.data) != entry:
            raise Refused(name, f"its {len(blob.data)} bytes are not those that were saved")
        return blob.data

    def _name(self, name: str) -> str:
        if Path(name).name != name or name in ("", ".", ".."):
            raise UsageError(f"a saved file has a plain name such as state.npz, found {name!r}")
        return f"g{self._generation:04d}-{name}"


def _entry(data: bytes) -> FileEntry:
    if len(data) > _MOST_BYTES:
        raise StorageError(f"a saved file has at most {_MOST_BYTES} bytes, found {len(data)}; save several")
    blocks = [data[start : start + BLOCK_BYTES] for start in range(0, len(data), BLOCK_BYTES)]
    digests = tuple(hashlib.sha256(block).hexdigest() for block in blocks)
    return FileEntry(size_bytes=len(data), blocks=digests)
