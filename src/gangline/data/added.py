"""Files of a source, or of a run, that become the shards of a version: fetched, checked whole, stored or left there.

An Arrow IPC file without compression is taken as it is. Rows of other formats that pack reads are written into shards,
unless the files stay in place. A second call continues with the file that was open.

Files that others wrote are read in a process of their own, which may take so much memory and time and no more: parsers
expand what a file claims, and one of 12 KB may hold 400 MB. A process that needs more than it may, or that ends by
itself, is an error that names the file; its caller lives on.
"""

import resource
import signal
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, TypeVar

from gangline.data.arrow_shards import Columns, ShardWriter, check_shard, column_types, columns_text, is_mapped
from gangline.data.journal import PackJournal
from gangline.data.packed_inputs import open_input
from gangline.errors import ConfigError, GanglineError, IntegrityError
from gangline.spec.codec import from_plain, to_plain
from gangline.spec.config.problems import refusal
from gangline.spec.dataset import MOST_SHARDS, Dataset, DatasetOrigin, DatasetShard
from gangline.storage.objects.blobs import PREFIX, put_blob
from gangline.storage.objects.growing_file import put_blocks
from gangline.storage.objects.protocol import ObjectStore
from gangline.units import format_bytes

_BLOCK_BYTES = 8 << 20


@dataclass(frozen=True, kw_only=True, slots=True)
class AddedFile:
    """A file that is read for a version."""

    path: str
    """Path inside the version, and its place in messages."""
    size_bytes: int
    blocks: Callable[[], Iterable[bytes]]
    sha256: str | None = None
    """Digest that it must have; None: it is not known yet."""


def add_files(
    files: Sequence[AddedFile], *, name: str, origin: DatasetOrigin, store: ObjectStore, journal: PackJournal,
    folder: Path, in_place: str | None = None, notify: Callable[[int, int], object] = lambda _done, _all: None,
) -> Dataset:  # fmt: skip
    """The document of a version of these files; the caller signs and writes it, then removes the journal.

    Args:
        folder: Existing folder for the file that is being read.
        in_place: Name of the source that keeps the bytes; None: they are copied into the store.
        notify: Called after each file with the number of files that are done, and of all.

    Raises:
        ConfigError: A file has another form or other columns than the first, or there are none.
        IntegrityError: A file has another digest than it must have, or changed its size meanwhile.
    """
    if not 1 <= len(files) <= MOST_SHARDS:
        raise ConfigError(f"{name}: wanted 1 to {MOST_SHARDS} files, found {len(files)}")
    shards: list[DatasetShard] = []
    schema: Columns | None = None
    for number, file in enumerate(files):
        if number < len(journal.entries):
            entry = journal.entries[number]
            columns = tuple((str(each[0]), str(each[1])) for each in entry["schema"])
            dataset_shards = [from_plain(DatasetShard, each) for each in entry["shards"]]
        else:
            with _fetched(file, folder) as (path, digest):
                columns, dataset_shards = _shards_of(file, path, digest, store=store, in_place=in_place)
            journal.add({"schema": columns, "shards": to_plain(dataset_shards)})
        if schema is not None and schema != columns:
            raise refusal(
                f"{file.path}: wanted the columns of {files[0].path}, {columns_text(schema)}; found"
                f" {columns_text(columns)}"
            )
        schema = columns
        shards += dataset_shards
        notify(number + 1, len(files))
    assert schema is not None  # there is a file
    rows = sum(shard.rows for shard in shards)
    return Dataset(name=name, num_samples=rows, schema=schema, shards=tuple(shards), origin=origin)


@contextmanager
def _fetched(file: AddedFile, folder: Path) -> Iterator[tuple[Path, str]]:
    """The file on this disk with its digest, deleted afterwards."""
    with tempfile.TemporaryDirectory(prefix="add-", dir=folder) as place:
        path, found = Path(place) / file.path.rpartition("/")[2], sha256()
        with path.open("wb") as sink:
            for block in file.blocks():
                found.update(block)
                sink.write(block)
        digest, size = found.hexdigest(), path.stat().st_size
        if size != file.size_bytes or file.sha256 not in (None, digest):
            wanted = f"{file.size_bytes} bytes" + (f" of digest {file.sha256}" if file.sha256 else "")
            raise IntegrityError(f"{file.path}: wanted {wanted}, found {size} of {digest}; is it still being written?")
        yield path, digest


def _shards_of(
    file: AddedFile, path: Path, digest: str, *, store: ObjectStore, in_place: str | None
) -> tuple[Columns, list[DatasetShard]]:
    """Columns and shards of a file, which are stored then, unless they stay in place."""
    shards: list[DatasetShard] = []
    columns: Columns = ()
    for found, rows, data in pieces_apart(_checked if in_place else _converted, path, file.path):
        columns = found
        if data is not None:
            key, size, name = put_blob(store, data), len(data), f"{file.path}-{len(shards):03d}.arrow"
        else:
            key, size, name = PREFIX + digest, file.size_bytes, file.path
            if in_place is None:
                _store_file(store, path, key)
        shards.append(
            DatasetShard(
                path=name, sha256=key.removeprefix(PREFIX), size_bytes=size, rows=rows, source=in_place,
                source_path=file.path if in_place else "",
            )
        )  # fmt: skip
    if not shards:
        raise refusal(f"{file.path}: wanted rows, found none; leave the file out")
    return columns, shards


def check_apart(path: Path, place: str) -> tuple[Columns, int]:
    """Columns and number of rows, as `check_shard` finds them, in a process of its own."""
    [(columns, rows, _)] = pieces_apart(_checked, path, place)
    return columns, rows


def _checked(path: Path, place: str) -> Iterator[tuple[Columns, int, bytes | None]]:
    """Columns and rows of a file that is a shard."""
    yield *check_shard(path, place), None


def _converted(path: Path, place: str) -> Iterator[tuple[Columns, int, bytes | None]]:
    """Columns, rows and bytes of each shard that a file is made into; no bytes: the file is one."""
    if is_mapped(path):
        yield from _checked(path, place)
        return
    made: list[tuple[int, bytes]] = []
    try:
        schema, batches = open_input(path, None)
        writer = ShardWriter(schema, lambda data, rows: made.append((rows, data)))
        for batch in batches:
            writer.write(batch)
            yield from ((column_types(schema), *made.pop(0)) for _ in range(len(made)))
        writer.close()
    except ConfigError as error:
        raise ConfigError(str(error).replace(str(path), place)) from error
    yield from ((column_types(schema), *each) for each in made)


def _store_file(store: ObjectStore, path: Path, key: str) -> None:
    """Put a file as a blob, unless the store has it."""
    entry = store.head(key)
    if entry is not None and entry.size_bytes == path.stat().st_size:
        return
    with path.open("rb") as file:
        put_blocks(store, key, iter(lambda: file.read(_BLOCK_BYTES), b""))


MOST_READER_BYTES = 4 << 30
"""Memory of the process: a group of rows of a Parquet file is in it as a whole."""
MOST_READER_SECONDS = 600.0
"""Time between two pieces: a shard takes seconds."""

T = TypeVar("T")


def pieces_apart(read: Callable[[Path, str], Iterator[T]], path: Path, place: str) -> Iterator[T]:
    """What `read` yields of the file at `path`, read in a process of its own.

    Args:
        read: Function of a module, called with `path` and `place`.
        path: The file.
        place: Name of the file in messages.

    Raises:
        GanglineError: What `read` raised.
        ConfigError: It needs more memory or time than it may, or its process ended by itself.
    """
    context = get_context("forkserver")
    context.set_forkserver_preload(["__main__", read.__module__])
    pieces, answer = context.Pipe(duplex=False)
    process = context.Process(target=_answer, args=(answer, MOST_READER_BYTES, read, path, place), daemon=True)
    process.start()
    answer.close()
    try:
        while pieces.poll(MOST_READER_SECONDS):
            piece, error = pieces.recv()
            if error is not None:
                raise error
            if piece is None:
                return
            yield piece
        raise refusal(
            f"{place}: wanted its next rows within {MOST_READER_SECONDS:.0f} s, found none; write smaller files"
        )
    except EOFError as error:
        process.join()
        raise refusal(
            f"{place}: wanted a file that can be read, found one that ends its reader ({process.exitcode})"
        ) from error
    finally:
        process.kill()
        process.join()
        pieces.close()


def _answer(
    answer: "Connection[Any, Any]", most_bytes: int, read: Callable[[Path, str], Iterator[T]], path: Path, place: str
) -> None:
    """Send (piece, None) for each that `read` yields, and at last (None, None) or (None, error)."""
    resource.setrlimit(resource.RLIMIT_DATA, (most_bytes, most_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the caller kills this process
    error: GanglineError | None = None
    try:
        for piece in read(path, place):
            answer.send((piece, None))
    except MemoryError:
        error = refusal(
            f"{place}: wanted a file that is read within {format_bytes(most_bytes)} of memory, found one that needs"
            " more; write smaller groups of rows"
        )
    except GanglineError as found:
        error = found
    answer.send((None, error))
