"""Bytes into a store by hashed blocks, and out of it by verified ranges.

A block is hashed in the very buffer that is sent, and in the very buffer that a caller copies from: between check and
use nothing is read twice. What the bytes mean is left to others.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import islice
from typing import Protocol

from gangline.checkpoint.envelope import BLOCK_BYTES, FileEntry
from gangline.checkpoint.refused import Refused
from gangline.errors import StorageError
from gangline.storage.protocol import ObjectStore

_READERS = 4
_AHEAD = 6


def write_file(store: ObjectStore, key: str, pieces: Iterable[bytes | memoryview]) -> FileEntry:
    """Write the concatenation of `pieces` under `key`, one block in memory at a time; durable when it returns.

    Raises:
        StorageError: The store failed, or has another size afterwards than was sent.
    """
    whole, digests, size = sha256(), [], 0
    blocks = iter(_blocks(pieces))
    first, second = next(blocks, b""), next(blocks, None)
    if second is None:
        store.put(key, first)
        digests, size = ([sha256(first).hexdigest()] if first else []), len(first)
        whole.update(first)
    else:
        with store.upload(key) as upload:
            for block in _chain(first, second, blocks):
                digests.append(sha256(block).hexdigest())
                whole.update(block)
                size += len(block)
                upload.part(block)
    _check_size(store, key, size)
    return FileEntry(size_bytes=size, sha256=whole.hexdigest(), blocks=tuple(digests))


def _chain(first: bytes, second: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    yield first
    yield second
    yield from rest


def _blocks(pieces: Iterable[bytes | memoryview]) -> Iterator[bytes]:
    """Regroup pieces of any length into blocks of 16 MiB; the last one is shorter."""
    waiting: list[memoryview] = []
    room = BLOCK_BYTES
    for piece in pieces:
        view = memoryview(piece).cast("B")
        while len(view) >= room:
            yield b"".join((*waiting, view[:room]))
            view, waiting, room = view[room:], [], BLOCK_BYTES
        if view:
            waiting.append(view)
            room -= len(view)
    if waiting:
        yield b"".join(waiting)


def _check_size(store: ObjectStore, key: str, size: int) -> None:
    entry = store.head(key)
    if entry is None or entry.size_bytes != size:
        found = "nothing" if entry is None else f"{entry.size_bytes} bytes"
        raise StorageError(f"wrote {size} bytes to {key}, the store has {found}; the next save writes it anew")


class Blocks(Protocol):
    """Where a file's verified blocks come from; `read` fetches and verifies one of them."""

    def get(self, name: str, number: int, read: Callable[[int], bytes]) -> bytes: ...


class BlockCache:
    """The blocks read last, of all files of a checkpoint together: neighbouring tensors share them."""

    def __init__(self, blocks: int = 16) -> None:
        self._blocks = blocks
        self._held: OrderedDict[tuple[str, int], bytes] = OrderedDict()

    def get(self, name: str, number: int, read: Callable[[int], bytes]) -> bytes:
        """Block `number` of file `name`, read where it is not held."""
        held = self._held.pop((name, number), None)
        block = read(number) if held is None else held
        self._held[name, number] = block
        while len(self._held) > self._blocks:
            self._held.popitem(last=False)
        return block


class ReadAhead:
    """Blocks of one file, fetched and verified by a few threads ahead of a caller that takes them in order."""

    def __init__(self, pool: Executor, numbers: Iterable[int]) -> None:
        self._pool, self._numbers = pool, iter(numbers)
        self._coming: dict[int, Future[bytes]] = {}
        self._held: tuple[int, bytes] = (-1, b"")

    def get(self, name: str, number: int, read: Callable[[int], bytes]) -> bytes:  # noqa: ARG002 - one file
        if number != self._held[0]:
            self._held = (-1, b"")
            for ahead in islice(self._numbers, _AHEAD - len(self._coming)):
                self._coming[ahead] = self._pool.submit(read, ahead)
            coming = self._coming.pop(number, None)
            self._held = (number, read(number) if coming is None else coming.result())
        return self._held[1]


@dataclass(frozen=True, slots=True)
class VerifiedFile:
    """One file of a checkpoint, read by range; every byte it gives belongs to a block that was hashed."""

    store: ObjectStore
    folder: str
    name: str
    entry: FileEntry
    blocks: Blocks

    def read(self, start: int, size: int) -> bytes:
        """Bytes `start` to `start + size`.

        Raises:
            Refused: They are not what the manifest says.
        """
        return b"".join(self.pieces(start, size))

    def pieces(self, start: int, size: int) -> Iterator[memoryview]:
        """The same bytes, a view of one verified block at a time."""
        if start < 0 or size < 0 or start + size > self.entry.size_bytes:
            raise Refused(self.name, f"has {self.entry.size_bytes} bytes, asked for {size} from {start}")
        while size > 0:
            number, offset = divmod(start, BLOCK_BYTES)
            piece = memoryview(self.blocks.get(self.name, number, self._read_block))[offset : offset + size]
            yield piece
            start, size = start + len(piece), size - len(piece)

    @contextmanager
    def ahead(self, ranges: Iterable[tuple[int, int]]) -> Iterator["VerifiedFile"]:
        """The same file for a caller that will read `ranges` (start, size) in this order."""
        touched = (number for start, size in ranges for number in _numbers(start, size))
        with ThreadPoolExecutor(_READERS, thread_name_prefix="read-ahead") as pool:
            try:
                yield replace(self, blocks=ReadAhead(pool, dict.fromkeys(touched)))
            finally:
                pool.shutdown(cancel_futures=True)

    def _read_block(self, number: int) -> bytes:
        start = number * BLOCK_BYTES
        wanted = min(BLOCK_BYTES, self.entry.size_bytes - start)
        blob = self.store.get(f"{self.folder}/{self.name}", start, wanted)
        if blob is None:
            raise Refused(self.name, "the manifest lists it, the store has no such file")
        if len(blob.data) != wanted or blob.size_bytes != self.entry.size_bytes:
            raise Refused(self.name, f"wanted {self.entry.size_bytes} bytes, found {blob.size_bytes}")
        if sha256(blob.data).hexdigest() != self.entry.blocks[number]:
            raise Refused(self.name, f"block {number} (from byte {start}) is not what was written")
        return blob.data


def _numbers(start: int, size: int) -> range:
    """Blocks that a range touches."""
    return range(start // BLOCK_BYTES, -(-(start + size) // BLOCK_BYTES)) if size else range(0)
