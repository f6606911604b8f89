"""Content-addressed objects: stored once, verified at each read."""

import hashlib

import pytest

from gangline.errors import IntegrityError, StorageError
from gangline.storage.folder.store import FolderStore
from gangline.storage.objects.blobs import get_blob, put_blob


@pytest.fixture
def store(tmp_path):
    return FolderStore(tmp_path / "store")


def test_key_is_the_digest(store):
    assert put_blob(store, b"data") == "blobs/sha256/" + hashlib.sha256(b"data").hexdigest()
    assert get_blob(store, put_blob(store, b"data")) == b"data"


def test_second_put_writes_nothing(store):
    etag = store.get(put_blob(store, b"data")).etag
    assert store.get(put_blob(store, b"data")).etag == etag


def test_flipped_bit_is_refused(store):
    key = put_blob(store, b"data")
    store.put(key, b"dat`")
    with pytest.raises(IntegrityError, match="holds data with digest"):
        get_blob(store, key)


def test_missing_blob_and_wrong_key_are_distinguished(store):
    with pytest.raises(StorageError, match=r"wanted the blob .* found none"):
        get_blob(store, "blobs/sha256/" + "0" * 64)
    with pytest.raises(IntegrityError, match="wanted a blob key"):
        get_blob(store, "runs/p/record.json")


def test_torn_blob_is_written_again(store):
    key = put_blob(store, b"data")
    store.put(key, b"da")
    assert get_blob(store, put_blob(store, b"data")) == b"data"
