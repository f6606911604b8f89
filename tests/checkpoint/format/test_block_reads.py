"""Spans of a file read straight into memory: the bytes that were written, verified block by block, or a refusal."""

import tracemalloc
from random import Random

import pytest

from gangline.checkpoint.format import block_reads
from gangline.checkpoint.format.block_reads import ReadTarget, fill
from gangline.checkpoint.format.blocks import BlockCache, VerifiedFile, write_file
from gangline.checkpoint.format.manifest import BLOCK_BYTES, RefusedCheckpoint
from gangline.errors import StorageError

KEY, SIZE = "c/f", 3 * BLOCK_BYTES + 5


class GetsAlone:
    """What a store over a network offers."""

    def __init__(self, store):
        self.get = store.get


@pytest.fixture(scope="module")
def data():
    return Random(1).randbytes(SIZE)


@pytest.fixture(params=["file", "object"])
def file(request, store, data):
    entry = write_file(store, KEY, [data])
    return VerifiedFile(store if request.param == "file" else GetsAlone(store), "c", "f", entry, BlockCache())


def read(file, *ranges):
    targets = [bytearray(size) for _, size in ranges]
    fill(file, [ReadTarget(start, memoryview(target)) for (start, _), target in zip(ranges, targets, strict=True)])
    return targets


@pytest.mark.parametrize(
    "ranges",
    [
        [(0, SIZE)], [(0, 1), (1, BLOCK_BYTES), (BLOCK_BYTES + 1, 3)], [(SIZE - 1, 1)],
        [(7, 5), (2 * BLOCK_BYTES - 1, 2)],
        [(BLOCK_BYTES, BLOCK_BYTES)], [],
    ],
)  # fmt: skip
def test_spans_are_the_bytes_that_were_written(file, data, ranges):
    assert read(file, *ranges) == [data[start : start + size] for start, size in ranges]


def test_every_block_that_a_span_touches_is_verified_and_no_other(file, store, data):
    at = BLOCK_BYTES + 3
    store.put(KEY, data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
    assert read(file, (0, 4), (2 * BLOCK_BYTES, 4)) == [data[:4], data[2 * BLOCK_BYTES : 2 * BLOCK_BYTES + 4]]
    with pytest.raises(RefusedCheckpoint, match=rf"f: block 1 \(from byte {BLOCK_BYTES}\)"):
        read(file, (BLOCK_BYTES - 1, 2))


def test_bytes_that_no_one_wants_take_the_memory_of_one_block_per_thread(store, data, monkeypatch):
    monkeypatch.setattr(block_reads, "_READERS", 1)
    file = VerifiedFile(store, "c", "f", write_file(store, KEY, [data]), BlockCache())
    tracemalloc.start()
    try:
        assert read(file, *((number * BLOCK_BYTES + 9, 1) for number in range(3))) == [
            data[number * BLOCK_BYTES + 9 : number * BLOCK_BYTES + 10] for number in range(3)
        ]
        assert tracemalloc.get_traced_memory()[1] < 2 * BLOCK_BYTES
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("change", [b"x", -1])
def test_file_that_grew_or_shrank_is_refused(file, store, data, change):
    store.put(KEY, data + change if isinstance(change, bytes) else data[:change])
    with pytest.raises(RefusedCheckpoint, match=f"wanted {SIZE} bytes, found"):
        read(file, (SIZE - 1, 1))


def test_file_that_is_gone_is_refused_and_a_store_that_is_away_is_not(store, data):
    class Away:
        def get(self, key, start, size):
            raise StorageError("is the store up?")

    entry = write_file(store, KEY, [data])
    with pytest.raises(StorageError, match="is the store up"):
        read(VerifiedFile(Away(), "c", "f", entry, BlockCache()), (0, 1))
    store.delete(KEY)
    with pytest.raises(RefusedCheckpoint, match="no such file"):
        read(VerifiedFile(store, "c", "f", entry, BlockCache()), (0, 1))
