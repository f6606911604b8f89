"""Shard manifests: which objects a data set is made of."""

import json

import pytest

from gangline.data.shards import resolve_shards
from gangline.errors import ConfigError

KEY = "blobs/sha256/" + "a" * 64


def manifest(plain: object) -> dict[str, bytes]:
    return {"sets/a.json": json.dumps(plain).encode()}


def test_shards_keep_the_order_of_their_manifest():
    shards = [{"key": KEY, "size_bytes": 3}, {"key": KEY, "size_bytes": 3, "path": "tail.bin"}]
    files = resolve_shards(["sets/a.json"], stored=manifest(shards).get)
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
def test_manifest_that_does_not_say_what_it_must_is_refused(plain, message):
    with pytest.raises(ConfigError, match=message):
        resolve_shards(["sets/a.json"], stored=manifest(plain).get)


def test_manifest_that_is_not_there_or_no_json_is_refused():
    with pytest.raises(ConfigError, match="found nothing"):
        resolve_shards(["sets/a.json"], stored={}.get)
    for text in (b"{", b"[" * 100_000):
        with pytest.raises(ConfigError, match="wanted a list"):
            resolve_shards(["sets/a.json"], stored={"sets/a.json": text}.get)
