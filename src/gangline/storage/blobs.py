"""Content-addressed objects, `blobs/sha256/<hex>`: immutable, shared between runs, verified at each read."""

import hashlib
from collections.abc import Sequence

from gangline.errors import IntegrityError, StorageError
from gangline.storage.protocol import ObjectStore

PREFIX = "blobs/sha256/"


def blob_key(data: bytes) -> str:
    return PREFIX + hashlib.sha256(data).hexdigest()


def put_blob(store: ObjectStore, data: bytes) -> str:
    """Store `data` once; returns its key, also when it was there before."""
    key = blob_key(data)
    found = store.head(key)
    if found is None or found.size_bytes != len(data):
        store.put(key, data)
    return key


def get_blob(store: ObjectStore, key: str, *, copies: Sequence[ObjectStore] = ()) -> bytes:
    """The blob's bytes, from `store` or, where that fails, from the first of its copies that has it whole.

    Raises:
        StorageError: There is no such blob, or the store failed; what `store` said, whatever the copies did.
        IntegrityError: `key` is no blob key, or what the store holds has another digest.
    """
    digest = key.removeprefix(PREFIX)
    if not key.startswith(PREFIX) or len(digest) != 64:
        raise IntegrityError(f"wanted a blob key {PREFIX}<64 hex digits>, found {key!r}")
    try:
        return _verified(store, key, digest)
    except (StorageError, IntegrityError) as first:
        for copy in copies:
            try:
                return _verified(copy, key, digest)
            except (StorageError, IntegrityError) as error:
                first.add_note(f"nor from its copy: {error}")
        raise


def _verified(store: ObjectStore, key: str, digest: str) -> bytes:
    blob = store.get(key)
    if blob is None:
        raise StorageError(f"store {store.url}: blob {key} is not there; was it collected, or is this another store?")
    if (found := hashlib.sha256(blob.data).hexdigest()) != digest:
        raise IntegrityError(f"store {store.url}: {key} holds data with digest {found}; delete it and store it again")
    return blob.data
