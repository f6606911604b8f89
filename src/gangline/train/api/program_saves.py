"""Saved files of a program: any bytes, under a signed manifest like that of a checkpoint."""

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from itertools import count
from pathlib import Path

from gangline.checkpoint.format.commit import seal
from gangline.checkpoint.format.manifest import (
    BLOCK_BYTES,
    FILES_FORMAT,
    MANIFEST,
    FileEntry,
    Manifest,
    RefusedCheckpoint,
    checkpoint_folder,
    list_checkpoints,
)
from gangline.checkpoint.format.manifest import read_manifest as read_verified
from gangline.checkpoint.format.retention import retain
from gangline.errors import IntegrityError, StorageError, UsageError
from gangline.spec.gang.status import WeightsFile
from gangline.spec.globs import is_inside
from gangline.spec.program_files import SAVED_PATHS
from gangline.storage.objects.keys import is_key
from gangline.storage.objects.protocol import ObjectStore

Content = bytes | str | os.PathLike[str]
"""Content of one name in a save: bytes, or the path of a file or folder on disk."""
_MOST_BYTES = 8 * 2**30


class ProgramSaves:
    """The saves below `prefix`; local, only rank 0 writes."""

    def __init__(
        self, store: ObjectStore, prefix: str, *, run: str, plan_digest: str, generation: int, key: bytes, keep: int
    ) -> None:
        self._store, self._prefix, self._key, self._keep = store, prefix, key, keep
        self._run, self._plan_digest, self._generation = run, plan_digest, generation
        self.files: dict[str, WeightsFile] = {}
        """Content of the newest save, or of the one that was restored, by the names that the program gave."""

    def save(self, step: int, files: Mapping[str, Content]) -> tuple[str, int]:
        """Write `files` by name; durable when it returns. Returns the folder in the store, and its size in bytes.

        Raises:
            UsageError: A name is not a plain file name, or there is nothing to save.
            StorageError: The store failed; older saves are kept.
        """
        folder = checkpoint_folder(self._prefix, step)
        flat = flatten(files)
        names = {name: _stored(name, generation=self._generation) for name in flat}
        entries = {names[name]: self._put(f"{folder}/{names[name]}", content) for name, content in flat.items()}
        manifest = Manifest(
            format=FILES_FORMAT, run=self._run, step=step, generation=self._generation,
            plan_sha256=self._plan_digest, files=entries,
        )  # fmt: skip
        seal(self._store, folder, manifest, self._key)
        retain(self._store, self._prefix, self._key, keep=self._keep)
        self.files = _contents(manifest, paths_of(flat))
        return folder, manifest.size_bytes

    def _put(self, key: str, content: bytes | Path) -> FileEntry:
        size = len(content) if isinstance(content, bytes) else content.stat().st_size
        if size > _MOST_BYTES:
            raise StorageError(
                f"a saved file: wanted at most {_MOST_BYTES} bytes, found {size}; split it into several files"
            )
        blocks = []
        if isinstance(content, bytes) or size <= BLOCK_BYTES:
            data = content if isinstance(content, bytes) else content.read_bytes()
            self._store.put(key, data)
            blocks, size = [_digest(block) for block in _split_blocks(data)], len(data)
        else:
            with self._store.upload(key) as upload, content.open("rb") as file:
                size = 0
                while block := file.read(BLOCK_BYTES):
                    upload.part(block)
                    blocks.append(_digest(block))
                    size += len(block)
        return FileEntry(size_bytes=size, blocks=tuple(blocks))

    def restore(self, into: Path, *, on_refused: Callable[[str, str], None]) -> int | None:
        """Download the newest save that verifies into the folder `into`; returns its step, None: there is no save.

        Raises:
            IntegrityError: There are saves, and none of them verifies.
        """
        refused = []
        for checkpoint in list_checkpoints(self._store, self._prefix):
            staged = into.with_name(f"{into.name}.part")
            shutil.rmtree(staged, ignore_errors=True)
            try:
                self._read(checkpoint.prefix, staged)
            except RefusedCheckpoint as error:
                shutil.rmtree(staged, ignore_errors=True)
                refused.append(f"{checkpoint.prefix}/{error}")
                on_refused(f"{checkpoint.prefix}/{error.file}", error.reason)
                continue
            shutil.rmtree(into, ignore_errors=True)
            staged.replace(into)
            return checkpoint.step
        if refused:
            raise IntegrityError(f"none of {len(refused)} saves below {self._prefix} verifies: {'; '.join(refused)}")
        return None

    def _read(self, folder: str, into: Path) -> None:
        manifest = read_verified(self._store, folder, self._key)
        if manifest.format != FILES_FORMAT:
            raise RefusedCheckpoint(MANIFEST, f"wanted a save of a program, found {manifest.format}")
        into.mkdir(parents=True)
        for name, entry in manifest.files.items():
            with (into / name.partition("-")[2]).open("wb") as file:
                for block in self._verified(folder, name, entry):
                    file.write(block)
        self.files = _contents(manifest, _unfold(into) if (into / SAVED_PATHS).exists() else {})

    def _verified(self, folder: str, name: str, entry: FileEntry) -> Iterator[bytes]:
        for number, digest in enumerate(entry.blocks):
            size = min(BLOCK_BYTES, entry.size_bytes - number * BLOCK_BYTES)
            blob = self._store.get(f"{folder}/{name}", number * BLOCK_BYTES, size)
            if blob is None:
                raise RefusedCheckpoint(name, "the manifest lists it, but the store has no such file")
            if len(blob.data) != size or _digest(blob.data) != digest:
                raise RefusedCheckpoint(
                    name, f"its bytes from offset {number * BLOCK_BYTES} do not match the digest in the manifest"
                )
            yield blob.data
        head = self._store.head(f"{folder}/{name}")
        if head is None or head.size_bytes != entry.size_bytes:
            raise RefusedCheckpoint(
                name, f"wanted {entry.size_bytes} bytes, found {'none' if head is None else head.size_bytes}"
            )


def flatten(files: Mapping[str, Content]) -> dict[str, bytes | Path]:
    """`files` by names that a store can spell, with each folder replaced by its files; the others have a number.

    Raises:
        UsageError: There is nothing to save, a path does not exist, or a name is not allowed.
    """
    by_path: dict[str, bytes | Path] = {}
    for name, content in ((name, _content(name, content)) for name, content in files.items()):
        if isinstance(content, bytes) or content.is_file():
            by_path[name] = content
        elif content.is_dir():
            below = sorted(path for path in content.rglob("*") if path.is_file() and not path.is_symlink())
            by_path |= {f"{name}/{file.relative_to(content).as_posix()}": file for file in below}
        else:
            raise UsageError(f"save({name!r}): wanted bytes, a file or a folder, found nothing at {content}")
    if not by_path:
        raise UsageError("save(): wanted at least one file: program.save({'state.npz': data})")
    numbers = (number for number in map("file-{:06d}".format, count()) if number not in by_path)
    names = {path: path if _is_spelled(path) else next(numbers) for path in by_path}
    paths = {name: path for path, name in names.items() if name != path}
    flat = {names[path]: content for path, content in by_path.items()}
    return flat | ({SAVED_PATHS: json.dumps(paths).encode()} if paths else {})


def paths_of(flat: Mapping[str, bytes | Path]) -> dict[str, str]:
    """Path that the program gave to each file of `flatten` that has a number."""
    listed = flat.get(SAVED_PATHS)
    return json.loads(listed) if isinstance(listed, bytes) else {}


def _contents(manifest: Manifest, paths: Mapping[str, str]) -> dict[str, WeightsFile]:
    stored = {name.partition("-")[2]: entry for name, entry in manifest.files.items()}
    return {paths.get(name, name): WeightsFile(blocks=entry.content) for name, entry in stored.items()}


def _is_spelled(name: str) -> bool:
    return "/" not in name and is_key(_stored(name, generation=0))


def _stored(name: str, *, generation: int) -> str:
    return f"g{generation:04d}-{name}"


def _content(name: str, content: object) -> bytes | Path:
    if name == SAVED_PATHS:
        raise UsageError(f"{SAVED_PATHS} of a save is written by gangline; choose another name")
    if not isinstance(name, str) or Path(name).name != name or name in ("", ".", ".."):
        raise UsageError(f"save(): wanted a plain file name such as state.npz, found {name!r}")
    if isinstance(content, bytes):
        return content
    if isinstance(content, str | os.PathLike):
        return Path(content)
    raise UsageError(f"save({name!r}): wanted bytes or a path, found {type(content).__name__}")


def _unfold(folder: Path) -> dict[str, str]:
    """Move the files of folders to their paths, which it returns."""
    paths: dict[str, str] = json.loads((folder / SAVED_PATHS).read_bytes())
    for name, path in paths.items():
        if not is_inside(path):
            raise RefusedCheckpoint(SAVED_PATHS, f"wanted a path inside the save, found {path!r}")
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).replace(folder / path)
    (folder / SAVED_PATHS).unlink()
    return paths


def _split_blocks(data: bytes) -> Iterator[bytes]:
    return (data[start : start + BLOCK_BYTES] for start in range(0, len(data), BLOCK_BYTES))


def _digest(block: bytes) -> str:
    return hashlib.sha256(block).hexdigest()
