"""Training data files on this node: downloaded from the store, each verified before it appears."""

import hashlib
import os
from pathlib import Path, PurePosixPath

from gangline.errors import ConfigError, IntegrityError, StorageError
from gangline.spec.data_source import DataFile
from gangline.spec.plan import Plan
from gangline.storage.objects.blobs import PREFIX
from gangline.storage.objects.protocol import ObjectStore

BLOCK_BYTES = 16 * 2**20


def data_paths(plan: Plan, folder: Path) -> list[str]:
    """Paths of the files of `plan` below `folder`, sorted by name.

    Raises:
        ConfigError: A name leads out of the folder.
    """
    return [str(_place(folder, each)) for each in sorted(plan.data.files, key=lambda each: each.path)]


def fetch_data_files(plan: Plan, folder: Path, store: ObjectStore) -> None:
    """Download the missing files into `folder`, which is created; called by one rank of a node.

    Raises:
        StorageError: The store failed, or lacks a file.
        IntegrityError: A file of the store does not have the digest in the plan.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for each in plan.data.files:
        place = _place(folder, each)
        if not (place.exists() and place.stat().st_size == each.size_bytes):  # it was renamed after verification
            _fetch(store, each, place)


def _place(folder: Path, file: DataFile) -> Path:
    path = PurePosixPath(file.path)
    if path.is_absolute() or ".." in path.parts or not path.parts:
        raise ConfigError(f"data file {file.path!r}: wanted a path inside the data folder")
    return folder / path


def _fetch(store: ObjectStore, file: DataFile, place: Path) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    part = place.with_name(f"{place.name}.{os.getpid()}.part")
    digest = hashlib.sha256()
    try:
        with part.open("wb") as out:
            for start in range(0, max(file.size_bytes, 1), BLOCK_BYTES):
                blob = store.get(file.key, start, BLOCK_BYTES) if file.size_bytes else store.get(file.key)
                if blob is None:
                    raise StorageError(f"store {store.url}: data file {file.path} ({file.key}) does not exist")
                digest.update(blob.data)
                out.write(blob.data)
        if PREFIX + digest.hexdigest() != file.key:
            raise IntegrityError(
                f"store {store.url}: {file.path} should be {file.key}, its bytes are {digest.hexdigest()}; "
                "delete it and run the build again"
            )
        part.replace(place)
    finally:
        part.unlink(missing_ok=True)
