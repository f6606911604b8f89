"""Shards of data sets as Arrow IPC files: written within limits, checked whole, read by row without a copy of the file.

A shard is cut by its rows alone, never by how they arrive, so equal rows give equal shards. Rows have no nulls, and
columns are numbers, text, bytes or lists of numbers: what a batch of a training can be made of.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from gangline.errors import ConfigError, IntegrityError, NotInstalledError

try:
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc
except ImportError as missing:
    raise NotInstalledError(f"data sets need pyarrow, {missing}; pip install 'gangline[data]'") from missing

SHARD_BYTES = 64_000_000
BATCH_BYTES = 4_000_000
"""Most bytes of the rows of one record batch, so that a random row touches little of a file."""
MOST_ROW_BYTES = 64_000_000
MOST_COLUMNS = 1_000
MAGIC = b"ARROW1"
"""First bytes of an Arrow IPC file; a stream has none."""

Row = dict[str, "np.ndarray[Any, Any] | bytes | str"]


class ShardWriter:
    """Cuts record batches into shards of about `SHARD_BYTES`.

    Args:
        schema: Columns of all batches.
        keep: Called with the bytes of each finished shard and the number of its rows.
        shard_bytes: Size of the rows at which a shard is finished.
        batch_bytes: Most bytes of one record batch.
    """

    def __init__(
        self, schema: pa.Schema, keep: Callable[[bytes, int], object], *, shard_bytes: int = SHARD_BYTES,
        batch_bytes: int = BATCH_BYTES,
    ) -> None:  # fmt: skip
        self._schema, self._keep = schema, keep
        self._shard_bytes, self._batch_bytes = shard_bytes, batch_bytes
        self._sink, self._file = _new_file(schema)
        self._rows = self._written_bytes = self._open_bytes = 0
        self._open: list[pa.RecordBatch] = []

    def write(self, batch: pa.RecordBatch) -> None:
        """Append rows; raises ConfigError for a row larger than `MOST_ROW_BYTES`."""
        sizes = row_sizes(batch)
        start = 0
        while start < batch.num_rows:
            ends = np.cumsum(sizes[start:])
            count = int(np.searchsorted(ends, self._batch_bytes - self._open_bytes, side="right"))
            if count == 0 and self._open:
                self._finish_batch()
                continue
            count = max(count, 1)
            self._open.append(batch.slice(start, count))
            self._open_bytes += int(ends[count - 1])
            start += count

    def close(self) -> None:
        """Finish the last shard, if it has rows."""
        if self._open:
            self._finish_batch()
        if self._rows:
            self._finish_shard()

    def _finish_batch(self) -> None:
        batch = pa.concat_batches(self._open)
        self._file.write_batch(batch)
        self._rows += batch.num_rows
        self._written_bytes += self._open_bytes
        self._open, self._open_bytes = [], 0
        if self._written_bytes >= self._shard_bytes:
            self._finish_shard()

    def _finish_shard(self) -> None:
        self._file.close()
        data, rows = self._sink.getvalue().to_pybytes(), self._rows
        self._sink, self._file = _new_file(self._schema)
        self._rows = self._written_bytes = 0
        self._keep(data, rows)


def _new_file(schema: pa.Schema) -> tuple[Any, Any]:
    sink = pa.BufferOutputStream()
    return sink, pa.ipc.new_file(sink, schema)


class ArrowRows:
    """Rows of one shard by number; the file is mapped into memory, and only what is read takes any.

    Raises:
        IntegrityError: The file is no Arrow IPC file, or its rows have nulls or columns of another kind.
    """

    def __init__(self, path: Path) -> None:
        try:
            self._map = pa.memory_map(str(path))
            reader = pa.ipc.open_file(self._map)
            self._batches = [reader.get_batch(index) for index in range(reader.num_record_batches)]
        except (pa.ArrowException, OSError) as error:
            raise IntegrityError(f"{path}: wanted an Arrow IPC file, found another: {error}") from error
        try:
            check_schema(reader.schema, str(path))
        except ConfigError as error:
            raise IntegrityError(str(error)) from error
        self._path, self._names = path, reader.schema.names
        self._ends = np.cumsum([batch.num_rows for batch in self._batches]).tolist()
        self._readers: dict[int, list[Callable[[int], Any]]] = {}

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __getitem__(self, index: int) -> Row:
        if not 0 <= index < len(self):
            raise IndexError(f"{self._path}: wanted a row below {len(self)}, found {index}")
        number = bisect_right(self._ends, index)
        within = index - (self._ends[number - 1] if number else 0)
        readers = self._readers.get(number)
        if readers is None:
            readers = self._readers[number] = self._open_batch(self._batches[number])
        return {name: read(within) for name, read in zip(self._names, readers, strict=True)}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Give the mapping back, once no row that was read needs it; rows are copies."""
        self._readers.clear()
        self._batches.clear()
        self._map.close()

    def _open_batch(self, batch: pa.RecordBatch) -> list[Callable[[int], Any]]:
        if any(map(_null_count, batch.columns)):
            raise IntegrityError(f"{self._path}: wanted rows without nulls, found nulls in a record batch")
        return [_value_reader(column) for column in batch.columns]


def _value_reader(column: pa.Array) -> Callable[[int], Any]:
    """Function that reads the value of a row as an array of its own, as bytes or as text."""
    kind = column.type
    if _is_text_or_bytes(kind):
        return lambda row: column[row].as_py()
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        offsets = column.offsets.to_numpy()
        values = column.values.to_numpy(zero_copy_only=False)
        return lambda row: values[offsets[row] : offsets[row + 1]].copy()
    shape, inner = [len(column)], column
    while pa.types.is_fixed_size_list(inner.type):
        shape.append(inner.type.list_size)
        inner = inner.flatten()
    numbers = inner.to_numpy(zero_copy_only=False).reshape(shape)
    return lambda row: np.array(numbers[row])


def check_schema(schema: pa.Schema, place: str) -> None:
    """Raise ConfigError, naming `place`, unless rows of these columns can be read by `ArrowRows`."""
    names = schema.names
    if not 1 <= len(names) <= MOST_COLUMNS or len(set(names)) != len(names):
        raise ConfigError(f"{place}: wanted 1 to {MOST_COLUMNS} columns, each name once, found {len(names)}")
    for column in schema:
        if not _is_readable(column.type):
            raise ConfigError(
                f"{place}: wanted columns of numbers, text, bytes or lists of numbers, found {column.name!r} of"
                f" {column.type}; convert it, or leave it out"
            )


def column_types(schema: pa.Schema) -> tuple[tuple[str, str], ...]:
    """Name and type of each column, as the document of a version has them."""
    return tuple((column.name, str(column.type)) for column in schema)


def check_shard(path: Path, place: str) -> tuple[tuple[tuple[str, str], ...], int]:
    """Columns and number of rows of an Arrow IPC file, every value of it checked.

    Raises:
        ConfigError: It is another file, is damaged, has no rows, or has columns or nulls that `ArrowRows` refuses;
            the message names `place`.
    """
    rows = 0
    try:
        with pa.memory_map(str(path)) as file:
            reader = pa.ipc.open_file(file)
            check_schema(reader.schema, place)
            for batch in (reader.get_batch(index) for index in range(reader.num_record_batches)):
                batch.validate(full=True)
                refuse_nulls(batch, place)
                rows += batch.num_rows
            found = column_types(reader.schema)
            del reader
    except (pa.ArrowException, OSError) as error:
        raise ConfigError(
            f"{place}: wanted an Arrow IPC file that is whole, found another: {error}; streams of Arrow and other"
            " formats are packed: gangline data pack"
        ) from error
    if not rows:
        raise ConfigError(f"{place}: wanted rows, found none; leave the file out")
    return found, rows


def row_sizes(batch: pa.RecordBatch) -> "np.ndarray[Any, Any]":
    """Bytes of each row, without what the format adds; raises ConfigError for a row that is too large."""
    sizes = np.zeros(batch.num_rows, dtype=np.int64)
    for column in batch.columns:
        kind = column.type
        if _is_text_or_bytes(kind):
            sizes += pc.binary_length(column).to_numpy(zero_copy_only=False).astype(np.int64)
        elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
            sizes += pc.list_value_length(column).to_numpy(zero_copy_only=False) * (kind.value_type.bit_width // 8 or 1)
        else:
            sizes += _fixed_bytes(kind)
    if batch.num_rows and int(sizes.max()) > MOST_ROW_BYTES:
        raise ConfigError(f"wanted rows of at most {MOST_ROW_BYTES:,} bytes, found one of {int(sizes.max()):,}; cut it")
    return sizes


def refuse_nulls(batch: pa.RecordBatch, place: str) -> None:
    """Raise ConfigError, naming `place` and the column, if a value is missing."""
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if count := _null_count(column):
            raise ConfigError(f"{place}: wanted values of {name!r} everywhere, found {count} nulls; fill them in")


def _null_count(column: pa.Array) -> int:
    """Nulls of a column, those inside its lists counted too."""
    kind, count = column.type, int(column.null_count)
    is_nested = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    return count + (_null_count(column.values) if is_nested else 0)


def _fixed_bytes(kind: pa.DataType) -> int:
    count = 1
    while pa.types.is_fixed_size_list(kind):
        count, kind = count * kind.list_size, kind.value_type
    return max(1, int(count * kind.bit_width // 8))


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind))


def _is_text_or_bytes(kind: pa.DataType) -> bool:
    tests = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)
    return any(test(kind) for test in tests)


def _is_readable(kind: pa.DataType) -> bool:
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _is_number(kind.value_type)
    if not pa.types.is_fixed_size_list(kind):
        return _is_number(kind) or _is_text_or_bytes(kind)
    while pa.types.is_fixed_size_list(kind):
        kind = kind.value_type
    return _is_number(kind)


def batches_of(path: Path) -> Iterator[pa.RecordBatch]:
    """Record batches of an Arrow file or of an Arrow stream."""
    with pa.memory_map(str(path)) as file:
        is_file = file.read(len(MAGIC)) == MAGIC
        file.seek(0)
        if not is_file:
            yield from pa.ipc.open_stream(file)
            return
        reader = pa.ipc.open_file(file)
        yield from (reader.get_batch(index) for index in range(reader.num_record_batches))
