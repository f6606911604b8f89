"""Blocks: what is written hashes to what is read, whatever the pieces; a damaged block is refused alone."""

from random import Random

import pytest
from blake3 import blake3

from gangline.checkpoint.format.blocks import BlockCache, VerifiedFile, write_file
from gangline.checkpoint.format.manifest import BLOCK_BYTES, RefusedCheckpoint
from gangline.errors import StorageError

NAME = "g0001-r00000-0.safetensors"


def opened(store, entry, blocks=16):
    return VerifiedFile(store, "c", NAME, entry, BlockCache(blocks))


@pytest.mark.parametrize("sizes", [(), (0,), (1,), (5, 0, 7), (BLOCK_BYTES,), (BLOCK_BYTES - 1, 2, BLOCK_BYTES + 3)])
def test_pieces_of_any_size_become_hashed_blocks(store, sizes):
    random = Random(7)
    pieces = [random.randbytes(size) for size in sizes]
    whole = b"".join(pieces)
    entry = write_file(store, f"c/{NAME}", [memoryview(piece) for piece in pieces])
    assert store.get(f"c/{NAME}").data == whole
    assert entry.size_bytes == len(whole)
    cuts = range(0, len(whole), BLOCK_BYTES)
    assert entry.blocks == tuple(blake3(whole[cut : cut + BLOCK_BYTES]).hexdigest() for cut in cuts)
    assert opened(store, entry).read(0, len(whole)) == whole
    assert b"".join(opened(store, entry).every_block()) == whole


@pytest.fixture
def large(store):
    """Two blocks and a bit, and its entry."""
    data = Random(1).randbytes(2 * BLOCK_BYTES + 5)
    return data, write_file(store, f"c/{NAME}", [data])


def test_ranges_across_blocks_are_the_bytes_that_were_written(store, large):
    data, entry = large
    file = opened(store, entry, blocks=1)
    edges = [0, 1, BLOCK_BYTES - 1, BLOCK_BYTES, BLOCK_BYTES + 1, 2 * BLOCK_BYTES, len(data)]
    for start in edges:
        for end in (edge for edge in edges if edge >= start):
            assert file.read(start, end - start) == data[start:end]


def test_damaged_block_is_refused_by_name_and_the_others_still_read(store, large):
    data, entry = large
    store.put(f"c/{NAME}", data[: BLOCK_BYTES + 9] + bytes([data[BLOCK_BYTES + 9] ^ 4]) + data[BLOCK_BYTES + 10 :])
    file = opened(store, entry)
    assert file.read(5, 10) == data[5:15]
    assert file.read(2 * BLOCK_BYTES, 5) == data[-5:]
    with pytest.raises(RefusedCheckpoint, match=rf"{NAME}: block 1 \(from byte {BLOCK_BYTES}\)"):
        file.read(BLOCK_BYTES - 1, 2)


@pytest.mark.parametrize(("start", "size"), [(-1, 2), (0, -1), (0, 6), (5, 1), (2**70, 1)])
def test_range_outside_the_file_is_refused(store, start, size):
    entry = write_file(store, f"c/{NAME}", [b"five!"])
    with pytest.raises(RefusedCheckpoint, match="has 5 bytes"):
        opened(store, entry).read(start, size)


def test_file_that_is_missing_or_of_another_size_is_refused(store):
    entry = write_file(store, f"c/{NAME}", [b"five!"])
    store.put(f"c/{NAME}", b"five! and more")
    with pytest.raises(RefusedCheckpoint, match="wanted 5 bytes, found 14"):
        opened(store, entry).read(0, 5)
    store.delete(f"c/{NAME}")
    with pytest.raises(RefusedCheckpoint, match="no such file"):
        opened(store, entry).read(0, 5)


def test_held_blocks_are_bounded():
    reads = []
    cache = BlockCache(2)
    for number in (0, 1, 0, 2, 0, 1):
        assert cache.get("f", number, lambda n: reads.append(n) or bytes([n])) == bytes([number])
    assert reads == [0, 1, 2, 1]


def test_store_that_keeps_another_size_is_not_success(store):
    class Cutting:
        def put(self, key, data):
            return store.put(key, data[:-1])

        def head(self, key):
            return store.head(key)

    with pytest.raises(StorageError, match="wrote 5 bytes to c/x, the store has 4 bytes"):
        write_file(Cutting(), "c/x", [b"five!"])
