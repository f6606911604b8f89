"""Content-addressed objects, `blobs/sha256/<hex>`: immutable, shared between runs, verified at each read."""

import hashlib
from collections.abc import Iterator

from gangline.errors import IntegrityError, StorageError
from gangline.storage.objects.protocol import ObjectStore

PREFIX = "blobs/sha256/"
BLOCK_BYTES = 16 << 20
"""Size of one request of `object_blocks`."""


def blob_key(data: bytes) -> str:
    """Key under which a blob of this content is stored."""
    return PREFIX + hashlib.sha256(data).hexdigest()


def put_blob(store: ObjectStore, data: bytes) -> str:
    """Store `data` once; returns its key, also when it was there before."""
    key = blob_key(data)
    entry = store.head(key)
    if entry is None or entry.size_bytes != len(data):
        store.put(key, data)
    return key


def object_blocks(store: ObjectStore, key: str, size_bytes: int, *, name: str) -> Iterator[bytes]:
    """Bytes of an object of that size, block by block, not verified.

    Args:
        name: What messages call it.

    Raises:
        StorageError: The object is missing, or the store failed.
    """
    for start in range(0, max(size_bytes, 1), BLOCK_BYTES):
        blob = store.get(key, start, BLOCK_BYTES) if size_bytes else store.get(key)
        if blob is None:
            raise StorageError(f"store {store.url}: wanted {name} at {key}, found none; was it deleted?")
        yield blob.data


def get_blob(store: ObjectStore, key: str) -> bytes:
    """The blob's bytes, verified.

    Raises:
        StorageError: The blob is missing, or the store failed.
        IntegrityError: `key` is not a blob key, or what the store holds has another digest.
    """
    digest = key.removeprefix(PREFIX)
    if not key.startswith(PREFIX) or len(digest) != 64:
        raise IntegrityError(f"wanted a blob key {PREFIX}<64 hex digits>, found {key!r}")
    blob = store.get(key)
    if blob is None:
        raise StorageError(
            f"store {store.url}: wanted the blob {key}, found none; was it deleted, or is this another store?"
        )
    if (found := hashlib.sha256(blob.data).hexdigest()) != digest:
        raise IntegrityError(f"store {store.url}: {key} holds data with digest {found}; delete it and store it again")
    return blob.data
