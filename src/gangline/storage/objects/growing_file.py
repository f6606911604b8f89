"""A growing file of lines, stored as parts: what is in the store already is not sent again.

    ranks/0.jsonl                    from its first byte on
    ranks/0.000000262207.jsonl       from that byte on

Each part is named by where it begins. Only the last one still grows; it is sealed by the line that reaches PART_BYTES,
so every writer of the same file cuts it alike. A part counts up to where the next one begins, and bytes beyond a gap do
not count: a reader finds each line once, whatever a killed writer left, and one object of any size is such a file.

A gang writes such files, so a reader knows the size before any content, takes no more than the listing said, and holds
one block or one line at a time.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from io import SEEK_END, BufferedReader, BytesIO
from itertools import chain
from pathlib import Path

from gangline.errors import IntegrityError
from gangline.storage.objects.protocol import Entry, ObjectStore, list_all
from gangline.units import format_bytes

PART_BYTES = 256 * 2**10
"""Size of a part: a writer resends half of one on average at each call; a reader sends a request for each."""
MOST_PARTS = 65_536
"""Parts of a file: 16 GiB at most; the name of each is in memory."""
BLOCK_BYTES = 8 * 2**20
"""Size of one request of a reader, at most; larger than any part with its last line."""
MOST_LINE_BYTES = 256 * 2**10
"""Longest line that gangline writes; longer ones are left out."""
MOST_LINES = 4_000_000


@dataclass(frozen=True, slots=True)
class GrowingFile:
    """A file as the store has it, of `size_bytes` or more: its writer may continue."""

    store: ObjectStore
    parts: tuple[tuple[int, str], ...]
    """Where each begins, and its key."""
    size_bytes: int

    @property
    def key(self) -> str:
        return self.parts[0][1]

    def demand(self, most_bytes: int) -> None:
        """Raises IntegrityError where it is larger: nothing of it was read."""
        if self.size_bytes > most_bytes:
            wanted, found = format_bytes(most_bytes), format_bytes(self.size_bytes)
            raise IntegrityError(f"{self.key}: wanted at most {wanted}, found {found}; not read")

    def read(self, *, last: int | None = None) -> bytes:
        """All of it, or its last so many bytes."""
        start = 0 if last is None else max(0, self.size_bytes - last)
        return b"".join(data for _, data in self.pieces(start))

    def pieces(self, start: int = 0) -> Iterator[tuple[int, bytes]]:
        """What lies from byte `start` on, block by block: the byte that it begins at, and what it adds to those before.

        Ends early where another file takes the place of this one meanwhile, and where the listing said it ends.
        """
        ends = [begins for begins, _ in self.parts[1:]]
        for (begins, key), end in zip(self.parts, [*ends, self.size_bytes], strict=True):
            for at in range(max(start, begins), end, BLOCK_BYTES):
                wanted = min(BLOCK_BYTES, end - at)
                blob = self.store.get(key, at - begins, wanted)
                if blob is None:
                    return
                yield at, blob.data
                if len(blob.data) < wanted:
                    return

    def __iter__(self) -> Iterator[bytes]:
        """Its lines, read again from the store; those of more than MOST_LINE_BYTES are left out.

        Raises:
            IntegrityError: There are more than MOST_LINES.
        """
        for number, line in enumerate(split_lines(data for _, data in self.pieces()), 1):
            if number > MOST_LINES:
                raise IntegrityError(f"{self.key}: wanted at most {MOST_LINES} lines, found more; not read to its end")
            yield line


def split_lines(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """Lines of a text that comes in blocks, with what follows the last line break; long ones are left out."""
    rest, is_too_long = b"", False
    for block in blocks:
        for piece in BytesIO(block):
            is_too_long = is_too_long or len(rest) + len(piece) > MOST_LINE_BYTES
            rest = b"" if is_too_long else rest + piece
            if piece.endswith(b"\n"):
                if not is_too_long:
                    yield rest
                rest, is_too_long = b"", False
    if rest:
        yield rest


def find_growing_file(store: ObjectStore, key: str) -> GrowingFile | None:
    """The file of lines at `key`, in one part or in many; None: there is none.

    Raises:
        IntegrityError: It has more than MOST_PARTS.
    """
    parts: list[tuple[int, str]] = []
    size = 0
    for begins, entry in _listed(store, key):
        if begins > size:
            break
        parts.append((begins, entry.key))
        size = begins + entry.size_bytes
    return GrowingFile(store, tuple(parts), size) if parts else None


def read_growing_file(store: ObjectStore, key: str, *, most_bytes: int, last: int | None = None) -> bytes | None:
    """All of the file of lines at `key`, or its last so many bytes; None: there is none.

    Raises:
        IntegrityError: That is more than `most_bytes`; nothing was read.
    """
    file = find_growing_file(store, key)
    if file is None:
        return None
    if last is None or last > most_bytes:
        file.demand(most_bytes)
    return file.read(last=last)


def join_parts(store: ObjectStore, key: str) -> None:
    """Make one object of a file that no longer grows."""
    file = find_growing_file(store, key)
    if file is not None and len(file.parts) > 1:
        put_blocks(store, key, (data for _, data in file.pieces()))
        for _, part in file.parts[1:]:
            store.delete(part)


def copy_growing_file(found: GrowingFile, key: str) -> None:
    """Another file of the same lines, part by part; what is there already stays as it is."""
    for begins, data in found.pieces():
        found.store.put_if_absent(_part_key(key, begins), data)


def put_blocks(store: ObjectStore, key: str, blocks: Iterable[bytes]) -> None:
    """Write an object of any size; it becomes visible once all of `blocks` is written."""
    gathered = _gathered(blocks)
    first = next(gathered, b"")
    second = next(gathered, None)
    if second is None:
        store.put(key, first)
        return
    with store.upload(key) as upload:
        for part in chain((first, second), gathered):
            upload.part(part)


def _gathered(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """Join blocks into pieces of BLOCK_BYTES or a little more, but for the last."""
    held: list[bytes] = []
    size = 0
    for block in blocks:
        held.append(block)
        size += len(block)
        if size >= BLOCK_BYTES:
            yield b"".join(held)
            held, size = [], 0
    if held:
        yield b"".join(held)


class GrowingFileWriter:
    """The writer's end of one file; it takes over what another writer left of the same file, and deletes all else."""

    def __init__(self, store: ObjectStore, key: str) -> None:
        self._store, self._key = store, key
        self._start: int | None = None
        """Where the last part begins; None: the store has not been read yet."""
        self._sent = b""
        """What the store has of the last part."""

    def send(self, path: Path) -> None:
        """Bring the store up to the last whole line of `path`. Raises `StorageError`, and may be called again."""
        with path.open("rb") as file:
            if self._start is None or not self._goes_on(file, self._start):
                self._start, self._sent = self._take_over(file)
            for start, part in _parts(file, self._start):
                if (start, part) != (self._start, self._sent):
                    self._store.put(_part_key(self._key, start), part)
                    self._start, self._sent = start, part

    def _goes_on(self, file: BufferedReader, start: int) -> bool:
        """Whether it is still the file that was sent: a restarted program may write it from the start."""
        return file.seek(0, SEEK_END) >= start and _part(file, start).startswith(self._sent)

    def _take_over(self, file: BufferedReader) -> tuple[int, bytes]:
        """Offset to continue from: the end of this file in the store. Parts of others are deleted, last first."""
        growing_file = find_growing_file(self._store, self._key)
        start, sent = 0, b""
        for begins, data in growing_file.pieces() if growing_file else ():
            file.seek(begins)
            if file.read(len(data)) != data:
                break
            start, sent = begins, data
        end = start + len(sent)
        for begins, entry in reversed(list(_listed(self._store, self._key))):
            if begins >= end:
                self._store.delete(entry.key)
        return (start, sent) if _part(file, start).startswith(sent) else (end, b"")


def _listed(store: ObjectStore, key: str) -> Iterator[tuple[int, Entry]]:
    """Every part of `key` in the store, in order, and where it begins."""
    stem, _, ending = key.rpartition(".")
    name = re.compile(re.escape(stem) + r"(?:\.(\d{12}))?\." + re.escape(ending))
    found: list[tuple[re.Match[str], Entry]] = []
    for entry in list_all(store, f"{stem}."):
        if match := name.fullmatch(entry.key):
            found.append((match, entry))
        if len(found) > MOST_PARTS:
            raise IntegrityError(f"{key}: wanted at most {MOST_PARTS} parts, found more; not read")
    yield from sorted(((int(match[1] or 0), entry) for match, entry in found), key=lambda part: part[0])


def _part_key(key: str, start: int) -> str:
    stem, _, ending = key.rpartition(".")
    return f"{stem}.{start:012d}.{ending}" if start else key


def _parts(file: BufferedReader, start: int) -> Iterator[tuple[int, bytes]]:
    """Part by part what `file` has from the beginning of one on."""
    while part := _part(file, start):
        yield start, part
        if len(part) < PART_BYTES:
            return
        start += len(part)


def _part(file: BufferedReader, start: int) -> bytes:
    """Whole lines from `start` on, up to the end of the one that reaches PART_BYTES."""
    file.seek(start)
    data = file.read(PART_BYTES)
    if len(data) == PART_BYTES and not data.endswith(b"\n"):
        data += file.readline()
    return data[: data.rfind(b"\n") + 1]
