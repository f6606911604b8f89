"""What every object store promises, whatever keeps the bytes."""

import os
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from gangline.errors import UsageError
from gangline.storage.objects.multipart import MIN_PART_BYTES
from gangline.storage.objects.protocol import ObjectStore, list_all

HOSTILE = [
    "",
    "/a",
    "a/",
    "a//b",
    ".",
    "..",
    "a/../b",
    "a/./b",
    "a b",
    "a\\b",
    "a\0b",
    "ä",
    "a%2e",
    "~a",
    "a\n",
    "a" * 901,
]
LONG_KEY = "/".join(["k" * 179] * 5) + "k"


def test_every_store_speaks_the_protocol(store):
    assert isinstance(store, ObjectStore)


def test_missing_key_is_an_answer(store):
    assert store.get("no/such") is None
    assert store.get("no/such", 5, 5) is None
    assert store.head("no/such") is None
    store.delete("no/such")


def test_what_was_written_is_read(store):
    etag = store.put("a/b", b"hello")
    blob = store.get("a/b")
    assert (blob.data, blob.etag, blob.size_bytes) == (b"hello", etag, 5)
    assert store.head("a/b").size_bytes == 5
    store.put("a/b", b"other")
    assert store.get("a/b").data == b"other"
    store.delete("a/b")
    assert store.get("a/b") is None


@pytest.mark.parametrize("data", [b"", b"\0", os.urandom(300_000)], ids=["empty", "nul", "random"])
def test_bytes_come_back_as_they_went(store, data):
    store.put("x", data)
    assert store.get("x").data == data


@pytest.mark.parametrize(
    ("start", "size", "expected"),
    [(0, 4, b"0123"), (3, 2, b"34"), (8, 9, b"89"), (8, None, b"89"), (0, 0, b""), (10, 5, b""), (99, None, b"")],
)
def test_ranges_read_what_is_there(store, start, size, expected):
    etag = store.put("range", b"0123456789")
    blob = store.get("range", start, size)
    assert (blob.data, blob.size_bytes, blob.etag) == (expected, 10, etag)


def test_range_of_an_empty_object_is_empty(store):
    store.put("empty", b"")
    assert store.get("empty", 0, 10).data == b""


def test_negative_range_is_refused(store):
    with pytest.raises(UsageError, match="starts at 0"):
        store.get("x", -1)


def test_absent_is_written_once(store):
    first = store.put_if_absent("once", b"first")
    assert first
    assert store.put_if_absent("once", b"second") is None
    assert store.get("once").data == b"first"
    assert store.get("once").etag == first


def test_stale_version_loses(store):
    old = store.put("cas", b"1")
    new = store.compare_and_set("cas", b"2", old)
    assert new
    assert store.compare_and_set("cas", b"3", old) is None
    assert store.get("cas").data == b"2"
    assert store.compare_and_set("cas", b"4", new)


def test_compare_and_set_of_a_missing_key_loses(store):
    etag = store.put("gone", b"1")
    store.delete("gone")
    assert store.compare_and_set("gone", b"2", etag) is None
    assert store.get("gone") is None


def test_one_of_64_first_writers_wins(store):
    answers = _race(64, lambda i: store.put_if_absent("race/first", b"writer %d" % i))
    winners = [i for i, answer in enumerate(answers) if answer]
    assert len(winners) == 1
    assert store.get("race/first").data == b"writer %d" % winners[0]


def test_one_of_64_successors_wins(store):
    before = store.put("race/next", b"before")
    answers = _race(64, lambda i: store.compare_and_set("race/next", b"writer %d" % i, before))
    winners = [i for i, answer in enumerate(answers) if answer]
    assert len(winners) == 1
    assert store.get("race/next").data == b"writer %d" % winners[0]


def test_no_increment_is_lost(store):
    store.put("count", b"0")

    def increment(_):
        for _ in range(500):
            blob = store.get("count")
            if store.compare_and_set("count", b"%d" % (int(blob.data) + 1), blob.etag):
                return True
        return False

    assert all(_race(8, increment))
    assert store.get("count").data == b"8"


def test_listing_is_sorted_by_key_and_pages(store):
    keys = ["l/a", "l/a-b/c", "l/a/b".replace("a/b", "b/a"), "l/a.txt", "l/b-", "l/b/b/c", "l/c"]
    for key in keys:
        store.put(key, key.encode())
    store.put("other", b"")
    entries = store.list("l/")
    assert [entry.key for entry in entries] == sorted(keys)
    assert [entry.size_bytes for entry in entries] == [len(key) for key in sorted(keys)]
    assert [entry.key for entry in list_all(store, "l/", page=2)] == sorted(keys)
    assert [entry.key for entry in store.list("l/b")] == sorted(key for key in keys if key.startswith("l/b"))
    assert [entry.key for entry in store.list("l/", "l/b", 2)] == [key for key in sorted(keys) if key > "l/b"][:2]
    assert store.list("nothing/") == []


def test_listing_time_is_the_stores_clock(store):
    store.put("clock", b"")
    head = store.head("clock")
    (entry,) = store.list("clock")
    assert abs(entry.modified - head.modified) < 2


def test_a_write_is_in_the_next_listing(store):
    for i in range(20):
        store.put(f"seen/{i:02}", b"")
        assert len(store.list("seen/")) == i + 1
    for i in range(20):
        store.delete(f"seen/{i:02}")
        assert len(store.list("seen/")) == 19 - i


def test_pages_cover_2500_keys(store):
    keys = [f"many/{i % 7}/{i:04}" for i in range(2500)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda key: store.put(key, b"x"), keys))
    assert [entry.key for entry in list_all(store, "many/")] == sorted(keys)


def test_keys_of_900_bytes_work(store):
    assert len(LONG_KEY) == 900
    assert store.put_if_absent(LONG_KEY, b"long")
    assert store.get(LONG_KEY).data == b"long"
    assert [entry.key for entry in store.list("k")] == [LONG_KEY]


@pytest.mark.parametrize("key", HOSTILE)
def test_hostile_keys_are_refused(store, key):
    calls = [
        lambda: store.get(key),
        lambda: store.head(key),
        lambda: store.put(key, b""),
        lambda: store.put_if_absent(key, b""),
        lambda: store.compare_and_set(key, b"", "1"),
        lambda: store.delete(key),
        lambda: store.upload(key),
        lambda: store.presign(key, 60),
    ]
    for call in calls:
        with pytest.raises(UsageError, match="key"):
            call()


def test_parts_become_one_object(store):
    parts = [os.urandom(MIN_PART_BYTES), os.urandom(MIN_PART_BYTES + 1), b"tail"]
    with store.upload("big/one") as upload:
        for part in (parts[0], memoryview(parts[1]), parts[2]):
            upload.part(part)
        assert store.get("big/one") is None
        assert [(each.key, each.upload_id) for each in store.open_uploads("big/")] == [("big/one", upload.upload_id)]
        assert store.open_uploads("small/") == []
        assert store.list("big/") == []
    assert store.get("big/one").data == b"".join(parts)
    assert store.get("big/one", MIN_PART_BYTES - 1, 2).data == b"".join(parts)[MIN_PART_BYTES - 1 : MIN_PART_BYTES + 1]
    assert store.open_uploads() == []


def test_completed_upload_answers_its_version(store):
    with store.upload("big/etag") as upload:
        upload.part(b"only")
        etag = upload.complete()
    assert store.get("big/etag").etag == etag
    assert store.compare_and_set("big/etag", b"next", etag)


def test_failing_block_leaves_nothing(store):
    store.put("big/two", b"old")

    def fails():
        with store.upload("big/two") as upload:
            upload.part(b"x" * MIN_PART_BYTES)
            raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match="mine"):
        fails()
    assert store.get("big/two").data == b"old"
    assert store.open_uploads() == []


def test_small_part_before_the_last_is_refused(store):
    def uploads():
        with store.upload("big/small") as upload:
            upload.part(b"small")
            upload.part(b"after it")

    with pytest.raises(UsageError, match="at least 5242880 bytes, found 5"):
        uploads()
    assert store.open_uploads() == []


def test_open_upload_is_aborted_by_a_stranger(store):
    context = store.upload("big/left")
    context.__enter__().part(b"x" * MIN_PART_BYTES)
    (left,) = store.open_uploads("big/")
    assert left.key == "big/left"
    store.abort_upload(left)
    store.abort_upload(left)
    context.gen.close()
    assert store.open_uploads() == []
    assert store.get("big/left") is None


def _race(workers, call):
    barrier = threading.Barrier(workers)

    def one(i):
        barrier.wait()
        return call(i)

    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(one, range(workers)))
