"""Commit of a save: the manifest, written last, and `latest.json`. No torch.

`latest.json` is a hint for readers and a fence for writers.
"""

from dataclasses import dataclass

from gangline.checkpoint.format.manifest import (
    MANIFEST,
    Manifest,
    RefusedCheckpoint,
    check_sizes,
    sign_manifest,
    verify_manifest,
)
from gangline.errors import IntegrityError, StorageError
from gangline.spec.codec import canonical, from_json
from gangline.storage.objects.protocol import ObjectStore

FORMAT = "gangline-latest/1"
_ATTEMPTS = 16
_MAX_BYTES = 65536


@dataclass(frozen=True, kw_only=True, slots=True)
class Latest:
    """Newest complete step, None if there is none, and the newest generation that writes."""

    format: str = FORMAT
    step: int | None
    generation: int


class StaleGeneration(IntegrityError):
    """A newer generation of the gang writes now; this one must stop."""


def read_latest(store: ObjectStore, prefix: str) -> Latest | None:
    """The hint; None if it is missing or damaged: then only the listing counts."""
    return _read(store, prefix)[0]


def claim(store: ObjectStore, prefix: str, generation: int) -> None:
    """Fence off all older generations; raises `StaleGeneration` if a newer one writes already."""
    _update_latest(store, prefix, generation, None)


def advance(store: ObjectStore, prefix: str, generation: int, step: int) -> None:
    """Record a complete step; raises `StaleGeneration` if a newer generation has taken over."""
    _update_latest(store, prefix, generation, step)


def _update_latest(store: ObjectStore, prefix: str, generation: int, step: int | None) -> None:
    key = f"{prefix}/latest.json"
    for _ in range(_ATTEMPTS):
        found, etag = _read(store, prefix)
        if found and found.generation > generation:
            raise StaleGeneration(
                f"generation {found.generation} writes to {prefix}; generation {generation} must stop"
            )
        wanted = Latest(step=step if step is not None or found is None else found.step, generation=generation)
        if wanted == found:
            return
        data = canonical(wanted)
        moved = store.put_if_absent(key, data) if etag is None else store.compare_and_set(key, data, etag)
        if moved is not None:
            return
    raise StorageError(f"{key} changed {_ATTEMPTS} times while it was updated; several gangs write to one run")


def _read(store: ObjectStore, prefix: str) -> tuple[Latest | None, str | None]:
    blob = store.get(f"{prefix}/latest.json", 0, _MAX_BYTES)
    if blob is None:
        return None, None
    try:
        return from_json(Latest, blob.data), blob.etag
    except (IntegrityError, RecursionError):
        return None, blob.etag  # a damaged hint is ignored; the next save replaces it


def seal(store: ObjectStore, folder: str, manifest: Manifest, key: bytes) -> None:
    """Write the manifest and read it back; it replaces a damaged one and one of an older generation.

    Raises:
        StaleGeneration: A newer generation saved this step already.
        StorageError: The manifest, or a file that it lists, does not read back as it was written.
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
    except RefusedCheckpoint as error:
        raise StorageError(f"{folder} is incomplete after it was written: {error}") from error


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
    except RefusedCheckpoint:
        return -1  # damaged: any generation may replace it
