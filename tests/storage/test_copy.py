"""Copying a store: complete, verified, resumable."""

import pytest

from gangline.errors import IntegrityError, StorageError
from gangline.storage import copy as module
from gangline.storage.copy import CopyReport, copy_store
from gangline.storage.folder.store import FolderStore
from gangline.storage.objects.blobs import put_blob
from gangline.storage.objects.multipart import MIN_PART_BYTES


@pytest.fixture
def source(tmp_path):
    store = FolderStore(tmp_path / "source")
    for i in range(5):
        put_blob(store, b"blob %d" % i)
        store.put(f"runs/p/{i}/record.json", b"record %d" % i)
    return store


@pytest.fixture
def target(tmp_path):
    return FolderStore(tmp_path / "target")


def content(store):
    return {entry.key: store.get(entry.key).data for entry in store.list("")}


def test_copy_is_complete_and_the_second_copies_nothing(source, target):
    assert copy_store(source, target) == CopyReport(num_copied=10, copied_bytes=5 * 6 + 5 * 8)
    assert content(target) == content(source)
    assert copy_store(source, target) == CopyReport(num_equal=10)


def test_prefix_limits_the_copy(source, target):
    seen = []
    copy_store(source, target, "runs/p/3/", on_object=lambda entry, was_equal: seen.append((entry.key, was_equal)))
    assert seen == [("runs/p/3/record.json", False)]
    assert list(content(target)) == ["runs/p/3/record.json"]


def test_interrupted_copy_continues(source, target, monkeypatch):
    real_put, puts = target.put, []

    def failing(key, data):
        puts.append(key)
        if len(puts) == 4:
            raise StorageError("away")
        return real_put(key, data)

    monkeypatch.setattr(target, "put", failing)
    with pytest.raises(StorageError, match="away"):
        copy_store(source, target)
    assert copy_store(source, target) == CopyReport(num_copied=7, num_equal=3, copied_bytes=2 * 6 + 5 * 8)
    assert content(target) == content(source)


def test_changed_object_of_the_same_size_is_copied(source, target):
    copy_store(source, target)
    source.put("runs/p/0/record.json", b"RECORD 0")
    assert copy_store(source, target).num_copied == 1
    assert target.get("runs/p/0/record.json").data == b"RECORD 0"


def test_rotten_blob_is_not_spread(source, target):
    key = put_blob(source, b"good")
    source.put(key, b"g00d")
    with pytest.raises(IntegrityError, match="holds data with digest"):
        copy_store(source, target, key)
    assert target.get(key) is None


def test_rotten_large_blob_leaves_no_upload(source, target, monkeypatch):
    monkeypatch.setattr(module, "CHUNK_BYTES", MIN_PART_BYTES)
    data = bytes(MIN_PART_BYTES) + b"end"
    key = put_blob(source, data)
    source.put(key, data[:-1] + b"!")
    with pytest.raises(IntegrityError, match="holds data with digest"):
        copy_store(source, target, key)
    assert target.get(key) is None
    assert target.open_uploads() == []


def test_large_object_goes_in_parts(source, target, monkeypatch):
    monkeypatch.setattr(module, "CHUNK_BYTES", MIN_PART_BYTES)
    data = bytes(range(256)) * (MIN_PART_BYTES * 2 // 256) + b"tail"
    source.put("big", data)
    assert copy_store(source, target, "big").copied_bytes == len(data)
    assert target.get("big").data == data
    assert copy_store(source, target, "big") == CopyReport(num_equal=1)


def test_object_that_changes_while_it_is_read_is_refused(source, target, monkeypatch):
    monkeypatch.setattr(module, "CHUNK_BYTES", MIN_PART_BYTES)
    source.put("big", bytes(MIN_PART_BYTES * 2))
    real = source.get

    def changing(key, start=0, size=None):
        if start:
            source.put("big", b"1" * MIN_PART_BYTES * 2)
        return real(key, start, size)

    monkeypatch.setattr(source, "get", changing)
    with pytest.raises(StorageError, match="changed while it was read; run again"):
        copy_store(source, target, "big")
    assert target.open_uploads() == []


@pytest.mark.tools
def test_copy_between_servers(source, s3_server):
    target = s3_server.store("copied")
    copy_store(source, target)
    assert content(target) == content(source)
    assert copy_store(target, source) == CopyReport(num_equal=10)
