"""Files of the store at their paths in a folder: each is streamed, and verified before it appears."""

import hashlib
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from gangline.errors import IntegrityError
from gangline.spec.data_source import DataFile
from gangline.storage.objects.blobs import PREFIX, get_blob, object_blocks
from gangline.storage.objects.code_layer import MAX_BYTES, MAX_FILES, LayerFile, pack, read_layer
from gangline.storage.objects.paths import check_new_path
from gangline.storage.objects.protocol import ObjectStore


def place_files(store: ObjectStore, files: Iterable[DataFile], folder: Path) -> None:
    """Add `files` to the new folder `folder`, which no other process writes to.

    Raises:
        StorageError: The store failed, or lacks a file.
        IntegrityError: A file has another digest, a path that leads out of the folder, or one that is there already.
    """
    for file in files:
        check_new_path(file.path)
        place = folder / file.path
        if os.path.lexists(place):
            raise IntegrityError(f"{file.path!r} is a file of the commit and one that DVC or Git LFS tracks")
        fetch_file(store, file, place)


def with_placed_files(code: bytes, store: ObjectStore, files: Sequence[DataFile]) -> bytes | None:
    """The layer `code` with `files` in it, each verified; None: together they are more than a layer holds.

    Raises:
        StorageError: The store failed, or lacks a file.
        IntegrityError: A file has another digest, or its path is one of the layer.
    """
    if not files:
        return code
    layer = read_layer(code)
    size_bytes = sum(len(file.data) for file in layer) + sum(file.size_bytes for file in files)
    if size_bytes > MAX_BYTES or len(layer) + len(files) > MAX_FILES:
        return None
    return pack([*layer, *(LayerFile(file.path, get_blob(store, file.key)) for file in files)])


def fetch_file(store: ObjectStore, file: DataFile, place: Path) -> None:
    """Download one file to `place`, whose folder is made; it appears once it is whole and verified.

    Raises:
        StorageError: The store failed, or lacks the file.
        IntegrityError: The file of the store does not have the digest of `file`.
    """
    place.parent.mkdir(parents=True, exist_ok=True)
    part = place.with_name(f"{place.name}.{os.getpid()}.part")
    digest = hashlib.sha256()
    try:
        with part.open("wb") as out:
            for block in object_blocks(store, file.key, file.size_bytes, name=f"data file {file.path}"):
                digest.update(block)
                out.write(block)
        if PREFIX + digest.hexdigest() != file.key:
            raise IntegrityError(
                f"store {store.url}: {file.path} should be {file.key}, its bytes are {digest.hexdigest()}; "
                "delete it and run the build again"
            )
        part.replace(place)
    finally:
        part.unlink(missing_ok=True)
