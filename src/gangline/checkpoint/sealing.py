"""The last write of a save: the manifest that makes it a checkpoint. No torch."""

from gangline.checkpoint.envelope import MANIFEST, Manifest, check_sizes, sign_manifest, verify_manifest
from gangline.checkpoint.latest import StaleGeneration
from gangline.checkpoint.refused import Refused
from gangline.errors import StorageError
from gangline.storage.protocol import ObjectStore


def seal(store: ObjectStore, folder: str, manifest: Manifest, key: bytes) -> None:
    """Write the manifest where none is, or over one of an older generation or one that is damaged; then read it back.

    Raises:
        StaleGeneration: A newer generation saved this step already.
        StorageError: What was written does not read back as it was written.
    """
    name = f"{folder}/{MANIFEST}"
    data = sign_manifest(manifest, key)
    if not _write(store, name, data, manifest.generation, key):
        raise StorageError(f"{name} changed while it was written; the next save writes its own")
    blob = store.get(name)
    if blob is None or blob.data != data:
        raise StorageError(f"{name} does not read back as it was written; the next save writes its own")
    try:
        check_sizes(store, folder, manifest)
    except Refused as error:
        raise StorageError(f"{folder} is not whole after it was written: {error}") from error


def _write(store: ObjectStore, name: str, data: bytes, generation: int, key: bytes) -> bool:
    blob = store.get(name)
    if blob is None:
        return store.put_if_absent(name, data) is not None
    if blob.data == data:
        return True
    if (other := _generation_of(blob.data, key)) > generation:
        raise StaleGeneration(f"{name} is of generation {other}; generation {generation} must stop")
    return store.compare_and_set(name, data, blob.etag) is not None


def _generation_of(data: bytes, key: bytes) -> int:
    try:
        return verify_manifest(data, key).generation
    except Refused:
        return -1  # damaged: anyone may replace it
