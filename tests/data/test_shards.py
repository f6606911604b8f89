"""Shard manifests: which objects a data set is made of."""

import json

import pytest

from gangline.data import resolve as resolved_data
from gangline.data.resolve import resolve_shards
from gangline.errors import ConfigError
from gangline.spec.config.data_keys import DataAccess
from gangline.storage.folder.store import FolderStore

KEY = "blobs/sha256/" + "a" * 64
ACCESS = DataAccess(prefixes=("sets/",))


@pytest.fixture
def store(tmp_path):
    return FolderStore(tmp_path / "store")


def resolve(store, plain, *, keys=("sets/a.json",)):
    store.put("sets/a.json", json.dumps(plain).encode())
    return resolve_shards(keys, store=store, access=ACCESS)


def test_shards_keep_the_order_of_their_manifest(store):
    shards = [{"key": KEY, "size_bytes": 3}, {"key": KEY, "size_bytes": 3, "path": "tail.bin"}]
    files = resolve(store, shards)
    assert [(file.path, file.key, file.size_bytes) for file in files] == [
        ("shards/000-000000", KEY, 3),
        ("shards/tail.bin", KEY, 3),
    ]


@pytest.mark.parametrize(
    ("plain", "message"),
    [
        ([], "found none in it"),
        ({}, "found none in it"),
        ([{"key": KEY}], "size_bytes"),
        ([{"key": "data/a", "size_bytes": 1}], "wanted blobs/sha256"),
        ([{"key": KEY, "size_bytes": -1}], "wanted blobs/sha256"),
        ([{"key": KEY, "size_bytes": 1, "path": "../../etc/passwd"}], "stays inside"),
        ([{"key": KEY, "size_bytes": 1, "path": "a"}, {"key": KEY, "size_bytes": 1, "path": "a"}], "two for a"),
    ],
)
def test_manifest_that_does_not_say_what_it_must_is_refused(store, plain, message):
    with pytest.raises(ConfigError, match=message):
        resolve(store, plain)


def test_manifest_that_is_not_there_or_no_json_is_refused(store):
    with pytest.raises(ConfigError, match="found nothing"):
        resolve_shards(["sets/a.json"], store=store, access=ACCESS)
    for text in (b"{", b"[" * 100_000):
        store.put("sets/a.json", text)
        with pytest.raises(ConfigError, match="wanted a list"):
            resolve_shards(["sets/a.json"], store=store, access=ACCESS)


def test_manifests_together_are_bounded_in_bytes_and_in_shards(store, monkeypatch):
    shards = [{"key": KEY, "size_bytes": 3}] * 3
    monkeypatch.setattr(resolved_data, "MOST_SHARDS", 5)
    with pytest.raises(ConfigError, match="at most 5 shards"):
        resolve(store, shards, keys=("sets/a.json", "sets/a.json"))
    monkeypatch.setattr(resolved_data, "MOST_MANIFEST_BYTES", 400)
    with pytest.raises(ConfigError, match="wanted at most 400 B of manifests together"):
        resolve(store, shards, keys=("sets/a.json", "sets/a.json"))
