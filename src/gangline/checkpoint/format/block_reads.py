"""Parallel reads of verified blocks, straight into the memory that needs them.

Bytes are in place before the digest of their block is checked: after a refusal the memory must not be used, as after
any refusal in the middle of a load. Other bytes of a block go into scratch memory.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from threading import local
from typing import Protocol, runtime_checkable

from gangline.checkpoint.format.blocks import VerifiedFile
from gangline.checkpoint.format.manifest import BLOCK_BYTES
from gangline.storage.objects.protocol import ObjectStore

_READERS = 4


@dataclass(frozen=True, slots=True)
class ReadTarget:
    """Bytes of a file from `start` on, and the writable memory they go to."""

    start: int
    target: memoryview

    @property
    def end(self) -> int:
        """Position in the file after its last byte."""
        return self.start + len(self.target)


@runtime_checkable
class ReadsInto(Protocol):
    """A store that reads into the caller's buffers."""

    def read_into(self, key: str, start: int, buffers: Sequence[memoryview]) -> tuple[int, int] | None:
        """Fill `buffers` one after another; (bytes read, bytes of the object), or None if there is no such key."""
        ...


def fill(file: VerifiedFile, spans: Sequence[ReadTarget]) -> None:
    """Read `spans`, ordered by `start` and apart from each other.

    Raises:
        RefusedCheckpoint: A block that they touch is damaged.
    """
    jobs, scratch = dict(_jobs(spans, file.entry.size_bytes)), _Scratch()
    with ThreadPoolExecutor(_READERS, thread_name_prefix="fill") as pool:
        futures = [pool.submit(_fill_block, file, number, parts, scratch) for number, parts in jobs.items()]
        try:
            for future in futures:
                future.result()
        finally:
            pool.shutdown(cancel_futures=True)


_Part = memoryview | int
"""Memory to fill, or a number of bytes that are not needed."""


def _jobs(spans: Sequence[ReadTarget], file_bytes: int) -> Iterator[tuple[int, list[_Part]]]:
    """(number, parts of that block) of each block that a span touches."""
    numbers = {number for span in spans for number in range(span.start // BLOCK_BYTES, -(-span.end // BLOCK_BYTES))}
    first = 0
    for number in sorted(numbers):
        start, end = number * BLOCK_BYTES, min((number + 1) * BLOCK_BYTES, file_bytes)
        while spans[first].end <= start:
            first += 1
        yield number, list(_parts(spans, first, start, end))


def _parts(spans: Sequence[ReadTarget], first: int, start: int, end: int) -> Iterator[_Part]:
    at = start
    for span in islice(spans, first, None):
        if span.start >= end:
            break
        if at < span.start:
            yield span.start - at
            at = span.start
        yield span.target[at - span.start : end - span.start]
        at = min(span.end, end)
    if at < end:
        yield end - at


class _Scratch(local):
    """Memory of one thread for bytes that are not needed, except for the digest of their block."""

    def __init__(self) -> None:
        self._scratch = memoryview(bytearray())

    def views(self, parts: Sequence[_Part]) -> list[memoryview]:
        """Memory for each of `parts`; scratch memory is valid until the next call."""
        wanted = sum(part for part in parts if isinstance(part, int))
        if wanted > len(self._scratch):
            self._scratch = memoryview(bytearray(wanted))
        free, views = self._scratch, []
        for part in parts:
            views.append(free[:part] if isinstance(part, int) else part)
            free = free[part:] if isinstance(part, int) else free
        return views


def _fill_block(file: VerifiedFile, number: int, parts: list[_Part], scratch: _Scratch) -> None:
    views = scratch.views(parts)
    found = _read(file.store, file.key, number * BLOCK_BYTES, views)
    if found is None:
        raise file.missing()
    read_bytes, file_bytes = found
    file.check_block(number, views, read_bytes=read_bytes, file_bytes=file_bytes)


def _read(store: ObjectStore, key: str, start: int, views: list[memoryview]) -> tuple[int, int] | None:
    if isinstance(store, ReadsInto):
        return store.read_into(key, start, views)
    blob = store.get(key, start, sum(map(len, views)))
    if blob is None:
        return None
    data = memoryview(blob.data)
    for view in views:
        part, data = data[: len(view)], data[len(view) :]
        view[: len(part)] = part
    return len(blob.data), blob.size_bytes
