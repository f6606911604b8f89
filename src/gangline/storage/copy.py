"""Copies objects from one store to another, verified; run again, it continues where it stopped.

What is equal is left alone: blobs, named by their digest, by size; all else is read on both sides and compared. An
object that the source changes meanwhile is copied as it was read, whole.
"""

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from gangline.errors import IntegrityError, StorageError
from gangline.storage.objects.blobs import PREFIX
from gangline.storage.objects.protocol import Entry, ObjectStore, list_all

CHUNK_BYTES = 16 * 1024 * 1024
"""Read at once; larger objects go as multipart uploads of such parts."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CopyReport:
    """What a copy did."""

    num_copied: int = 0
    num_equal: int = 0
    """Already there."""
    copied_bytes: int = 0


def copy_store(
    source: ObjectStore,
    target: ObjectStore,
    prefix: str = "",
    *,
    on_object: Callable[[Entry, bool], None] | None = None,
) -> CopyReport:
    """Copy every object below `prefix` of `source` to `target`; nothing is deleted there.

    Args:
        on_object: Called after each object, with whether it was there already; for progress.

    Raises:
        IntegrityError: A blob's bytes are not those its key names, or what was written reads back differently.
        StorageError: Either store failed; run again to continue.
    """
    num_copied = num_equal = copied_bytes = 0
    for entry in list_all(source, prefix):
        was_equal = _is_equal(source, target, entry)
        if was_equal:
            num_equal += 1
        else:
            _copy(source, target, entry)
            num_copied += 1
            copied_bytes += entry.size_bytes
        if on_object is not None:
            on_object(entry, was_equal)
    return CopyReport(num_copied=num_copied, num_equal=num_equal, copied_bytes=copied_bytes)


def _is_equal(source: ObjectStore, target: ObjectStore, entry: Entry) -> bool:
    there = target.head(entry.key)
    if there is None or there.size_bytes != entry.size_bytes:
        return False
    return entry.key.startswith(PREFIX) or _digest(source, entry.key) == _digest(target, entry.key)


def _copy(source: ObjectStore, target: ObjectStore, entry: Entry) -> None:
    wanted = hashlib.sha256()
    if entry.size_bytes <= CHUNK_BYTES:
        data = b"".join(_chunks(source, entry.key))
        wanted.update(data)
        _check_blob(source, entry.key, wanted.hexdigest())
        target.put(entry.key, data)
    else:
        with target.upload(entry.key) as upload:
            for chunk in _chunks(source, entry.key):
                wanted.update(chunk)
                upload.part(chunk)
            _check_blob(source, entry.key, wanted.hexdigest())
    if (found := _digest(target, entry.key)) != wanted.hexdigest():
        raise IntegrityError(
            f"store {target.url}: {entry.key} reads back with digest {found}, wrote {wanted.hexdigest()}; "
            "is another copy running, or is its disk failing?"
        )


def _check_blob(source: ObjectStore, key: str, digest: str) -> None:
    if key.startswith(PREFIX) and key != PREFIX + digest:
        raise IntegrityError(f"store {source.url}: {key} holds data with digest {digest}; delete it and store it again")


def _digest(store: ObjectStore, key: str) -> str:
    total = hashlib.sha256()
    for chunk in _chunks(store, key):
        total.update(chunk)
    return total.hexdigest()


def _chunks(store: ObjectStore, key: str) -> Iterator[bytes]:
    """The object in pieces of one version."""
    first = store.get(key, 0, CHUNK_BYTES)
    if first is None:
        raise StorageError(f"store {store.url}: {key} was deleted while it was read; run again")
    yield first.data
    for start in range(CHUNK_BYTES, first.size_bytes, CHUNK_BYTES):
        blob = store.get(key, start, CHUNK_BYTES)
        if blob is None or blob.etag != first.etag:
            raise StorageError(f"store {store.url}: {key} changed while it was read; run again")
        yield blob.data
