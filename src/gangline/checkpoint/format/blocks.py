"""Hashed blocks: files are written to a store block by block, and read back by verified ranges.

A block is hashed in the buffer that is sent, and in the buffer that a caller copies from: nothing is read twice between
check and use. A block has a BLAKE3 digest, because SHA-256 would cost several times what reading costs. A whole file is
proved by its size and the digests of its blocks, in order. `block_reads` reads many blocks at once.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Protocol

from blake3 import blake3

from gangline.checkpoint.format.manifest import BLOCK_BYTES, FileEntry, RefusedCheckpoint
from gangline.errors import StorageError
from gangline.storage.objects.protocol import ObjectStore

Bytes = bytes | memoryview


def write_file(store: ObjectStore, key: str, pieces: Iterable[Bytes]) -> FileEntry:
    """Write the concatenation of `pieces` under `key`, one block in memory at a time; durable when it returns.

    Raises:
        StorageError: The store failed, or has another size afterwards than the bytes that were sent.
    """
    digests: list[str] = []

    def hashed() -> Iterator[Bytes]:
        for block in _blocks(pieces):
            digests.append(block_digest([block]))
            yield block

    size = send_blocks(store, key, hashed())
    return FileEntry(size_bytes=size, blocks=tuple(digests))


def send_blocks(store: ObjectStore, key: str, blocks: Iterable[Bytes]) -> int:
    """Write `blocks`, each but the last of 16 MiB, as they are; bytes written, durable when it returns.

    Raises:
        StorageError: The store failed, or has another size afterwards than the bytes that were sent.
    """
    rest = iter(blocks)
    first, second = next(rest, b""), next(rest, None)
    size = len(first)
    if second is None:
        store.put(key, bytes(first))
    else:
        with store.upload(key) as upload:
            upload.part(first)
            for block in chain((second,), rest):
                size += len(block)
                upload.part(block)
    _check_size(store, key, size)
    return size


def block_digest(pieces: Iterable[Bytes]) -> str:
    """Digest that the manifest lists for a block that consists of `pieces`."""
    digest = blake3()
    for piece in pieces:
        digest.update(piece)
    return digest.hexdigest()


def _blocks(pieces: Iterable[Bytes]) -> Iterator[Bytes]:
    """Regroup pieces of any length into blocks of 16 MiB; the last is shorter. Whole blocks pass unchanged."""
    waiting: list[memoryview] = []
    room = BLOCK_BYTES
    for piece in pieces:
        view = memoryview(piece).cast("B")
        while len(view) >= room:
            yield b"".join((*waiting, view[:room])) if waiting else view[:room]
            view, waiting, room = view[room:], [], BLOCK_BYTES
        if view:
            waiting.append(view)
            room -= len(view)
    if waiting:
        yield b"".join(waiting) if waiting[1:] else waiting[0]


def _check_size(store: ObjectStore, key: str, size: int) -> None:
    entry = store.head(key)
    if entry is None or entry.size_bytes != size:
        found = "nothing" if entry is None else f"{entry.size_bytes} bytes"
        raise StorageError(f"wrote {size} bytes to {key}, the store has {found}; the next save writes it again")


class Blocks(Protocol):
    """Source of a file's verified blocks; `read` fetches and verifies one of them."""

    def get(self, name: str, number: int, read: Callable[[int], bytes]) -> bytes: ...


class BlockCache:
    """The blocks that were read last, of all files of a checkpoint: neighbouring tensors share them."""

    def __init__(self, blocks: int = 16) -> None:
        self._blocks = blocks
        self._cached: OrderedDict[tuple[str, int], bytes] = OrderedDict()

    def get(self, name: str, number: int, read: Callable[[int], bytes]) -> bytes:
        """Block `number` of file `name`, from the cache or by `read`."""
        cached = self._cached.pop((name, number), None)
        block = read(number) if cached is None else cached
        self._cached[name, number] = block
        while len(self._cached) > self._blocks:
            self._cached.popitem(last=False)
        return block


@dataclass(frozen=True, slots=True)
class VerifiedFile:
    """One file of a checkpoint, read by range; every byte belongs to a block whose digest was checked."""

    store: ObjectStore
    folder: str
    name: str
    entry: FileEntry
    blocks: Blocks

    def read(self, start: int, size: int) -> bytes:
        """Bytes `start` to `start + size`.

        Raises:
            RefusedCheckpoint: They differ from the manifest.
        """
        return b"".join(self.pieces(start, size))

    def pieces(self, start: int, size: int) -> Iterator[memoryview]:
        """Yield the bytes that `read` would return, one view of a verified block at a time."""
        if start < 0 or size < 0 or start + size > self.entry.size_bytes:
            raise RefusedCheckpoint(
                self.name, f"has {self.entry.size_bytes} bytes, a read wanted {size} from byte {start}"
            )
        while size > 0:
            number, offset = divmod(start, BLOCK_BYTES)
            piece = memoryview(self.block(number))[offset : offset + size]
            yield piece
            start, size = start + len(piece), size - len(piece)

    def block(self, number: int) -> bytes:
        """All of one block."""
        return self.blocks.get(self.name, number, self._read_block)

    def every_block(self) -> Iterator[bytes]:
        """All blocks of the file, read from the store and not cached."""
        return map(self._read_block, range(len(self.entry.blocks)))

    @property
    def key(self) -> str:
        """Key in the store."""
        return f"{self.folder}/{self.name}"

    def missing(self) -> RefusedCheckpoint:
        """Error for a file that the manifest lists and the store does not have."""
        return RefusedCheckpoint(self.name, "the manifest lists it, the store has no such file")

    def check_block(self, number: int, pieces: Iterable[Bytes], *, read_bytes: int, file_bytes: int) -> None:
        """Raise `RefusedCheckpoint` unless `pieces`, of which the store returned `read_bytes`, match the manifest."""
        start = number * BLOCK_BYTES
        if (read_bytes, file_bytes) != (min(BLOCK_BYTES, self.entry.size_bytes - start), self.entry.size_bytes):
            raise RefusedCheckpoint(self.name, f"wanted {self.entry.size_bytes} bytes, found {file_bytes}")
        if block_digest(pieces) != self.entry.blocks[number]:
            raise RefusedCheckpoint(self.name, f"block {number} (from byte {start}) is not what was written")

    def _read_block(self, number: int) -> bytes:
        start = number * BLOCK_BYTES
        blob = self.store.get(self.key, start, min(BLOCK_BYTES, self.entry.size_bytes - start))
        if blob is None:
            raise self.missing()
        self.check_block(number, [blob.data], read_bytes=len(blob.data), file_bytes=blob.size_bytes)
        return blob.data
