"""Shards of data sets as Arrow IPC files: written within limits, checked whole; outputs of a model in the same form.

A shard is cut by its rows alone, never by how they arrive, so equal rows give equal shards. Rows have no nulls, and
columns are numbers, text, bytes or lists of numbers: what a batch of a training can be made of.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from math import prod
from pathlib import Path
from typing import Any

from gangline.errors import ConfigError, NotInstalledError, TrainingError
from gangline.spec.config.problems import refusal

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

Columns = tuple[tuple[str, str], ...]
"""Name and type of each column."""


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


def check_schema(schema: pa.Schema, place: str) -> None:
    """Raise ConfigError, naming `place`, unless rows of these columns can be read by `ArrowRows`."""
    names = schema.names
    if not 1 <= len(names) <= MOST_COLUMNS or len(set(names)) != len(names):
        raise refusal(f"{place}: wanted 1 to {MOST_COLUMNS} columns, each name once, found {_columns_found(names)}")
    for column in schema:
        kind = column.type
        is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind)
        _, entry = ([], kind.value_type) if is_list else entries_of(kind)
        if not (_is_number(entry) or (entry == kind and is_text_or_bytes(kind))):
            raise refusal(
                f"{place}: wanted columns of numbers, text, bytes or lists of numbers, found {column.name[:90]!r} of"
                f" {str(kind)[:200]}; convert it, or leave it out"
            )


def _columns_found(names: list[str]) -> str:
    if len(names) > MOST_COLUMNS or not names:
        return str(len(names))
    return f"two that are called {next(name for name in names if names.count(name) > 1)[:90]!r}"


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """The columns without what writers of equal rows differ in: names of the entries of lists, whether nulls may be."""
    return pa.schema([(column.name, _plain_type(column.type)) for column in schema])


def _plain_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(_plain_type(kind.value_type), kind.list_size)
    if pa.types.is_large_list(kind):
        return pa.large_list(_plain_type(kind.value_type))
    return pa.list_(_plain_type(kind.value_type)) if pa.types.is_list(kind) else kind


def column_types(schema: pa.Schema) -> Columns:
    """Name and type of each column, as the document of a version has them."""
    return tuple((column.name, str(column.type)) for column in plain_schema(schema))


def columns_text(columns: Columns) -> str:
    """`label int64, text string`, as messages name columns."""
    text = ", ".join(f"{name} {kind}" for name, kind in columns)
    return text if len(text) <= 300 else f"{text[:300]}... ({len(columns)} columns)"


def is_mapped(path: Path) -> bool:
    """Whether a file is an Arrow IPC file whose first rows lie in it as they are, without compression."""
    with path.open("rb") as file:
        if file.read(len(MAGIC)) != MAGIC:
            return False
    try:
        with pa.memory_map(str(path)) as file:
            whole, reader = file.read_buffer(), pa.ipc.open_file(file)
            return reader.num_record_batches == 0 or _lies_in(whole, reader.get_batch(0))
    except MemoryError:
        raise
    except (pa.ArrowException, OSError):
        return True  # `check_shard` says what is wrong


def _lies_in(whole: pa.Buffer, batch: pa.RecordBatch) -> bool:
    """Whether the values of a record batch are a part of `whole`; those of a compressed one are a copy."""
    first, last = whole.address, whole.address + whole.size
    buffers = (buffer for column in batch.columns for buffer in column.buffers() if buffer is not None and buffer.size)
    return all(first <= buffer.address and buffer.address + buffer.size <= last for buffer in buffers)


def check_shard(path: Path, place: str) -> tuple[Columns, int]:
    """Columns and number of rows of an Arrow IPC file, every value of it checked.

    Raises:
        ConfigError: It is another file, is damaged or compressed, has no rows, or has columns or nulls that `ArrowRows`
            refuses; the message names `place`.
        MemoryError: It claims more than this process may take.
    """
    rows = 0
    try:
        with pa.memory_map(str(path)) as file:
            whole, reader = file.read_buffer(), pa.ipc.open_file(file)
            check_schema(reader.schema, place)
            for batch in (reader.get_batch(index) for index in range(reader.num_record_batches)):
                if not _lies_in(whole, batch):
                    raise refusal(
                        f"{place}: wanted rows that ranks map, found compressed ones; write it without"
                        " compression, or leave out --in-place, and they are converted"
                    )
                batch.validate(full=True)
                refuse_nulls(batch, place)
                rows += batch.num_rows
            found = column_types(reader.schema)
            del reader
    except MemoryError:
        raise
    except (pa.ArrowException, OSError) as error:
        raise refusal(
            f"{place}: wanted an Arrow IPC file that is whole, found another: {str(error)[:300]}; other files are"
            " converted where they need not stay in place"
        ) from error
    if not rows:
        raise refusal(f"{place}: wanted rows, found none; leave the file out")
    return found, rows


def row_sizes(batch: pa.RecordBatch) -> "np.ndarray[Any, Any]":
    """Bytes of each row, without what the format adds; raises ConfigError for a row that is too large."""
    sizes = np.zeros(batch.num_rows, dtype=np.int64)
    for column in batch.columns:
        kind = column.type
        if is_text_or_bytes(kind):
            sizes += pc.binary_length(column).to_numpy(zero_copy_only=False).astype(np.int64)
        elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
            sizes += pc.list_value_length(column).to_numpy(zero_copy_only=False) * (kind.value_type.bit_width // 8 or 1)
        else:
            shape, entry = entries_of(kind)
            sizes += max(1, prod(shape) * entry.bit_width // 8)
    if batch.num_rows and int(sizes.max()) > MOST_ROW_BYTES:
        raise ConfigError(f"wanted rows of at most {MOST_ROW_BYTES:,} bytes, found one of {int(sizes.max()):,}; cut it")
    return sizes


def refuse_nulls(batch: pa.RecordBatch, place: str) -> None:
    """Raise ConfigError, naming `place` and the column, if a value is missing."""
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if count := count_nulls(column):
            raise refusal(f"{place}: wanted values of {name!r} everywhere, found {count} nulls; fill them in")


def count_nulls(column: pa.Array) -> int:
    """Nulls of a column, those inside its lists counted too."""
    kind, count = column.type, int(column.null_count)
    is_nested = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    return count + (count_nulls(column.values) if is_nested else 0)


def entries_of(kind: pa.DataType) -> tuple[list[int], pa.DataType]:
    """Sizes of nested lists of fixed size, outermost first, and the type of their entries."""
    shape: list[int] = []
    while pa.types.is_fixed_size_list(kind):
        shape.append(kind.list_size)
        kind = kind.value_type
    return shape, kind


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind))


def is_text_or_bytes(kind: pa.DataType) -> bool:
    """Whether values of a type are text or bytes."""
    tests = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)
    return any(test(kind) for test in tests)


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


ROW = "row"
"""Column of outputs with the number of the row in the shard of the same path that was scored."""
_ROWS_OF_BATCH = 4096
"""Fewest rows of one record batch, except for the last."""


def write_outputs(answers: Iterable[Mapping[str, np.ndarray]], into: Path) -> int:
    """Write outputs of a model, one column an output and `ROW`, into a file that appears whole; the number of rows.

    Raises:
        TrainingError: An output has not one row a sample, or changes its shape.
        ConfigError: There are no rows.
    """
    part, total = into.with_name(f"{into.name}.part"), 0
    writer, waiting, num_waiting = None, list[pa.RecordBatch](), 0
    with part.open("wb") as sink:
        for answer in answers:
            table = _record_batch(answer, total)
            writer = writer or pa.ipc.new_file(sink, table.schema)
            total, num_waiting = total + table.num_rows, num_waiting + table.num_rows
            waiting.append(table)
            if num_waiting >= _ROWS_OF_BATCH:
                writer.write_batch(_joined(waiting))
                waiting, num_waiting = [], 0
        if writer is None:
            raise ConfigError(f"{into.name}: wanted rows, found none")
        if waiting:
            writer.write_batch(_joined(waiting))
        writer.close()
    part.replace(into)
    return total


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    try:
        return pa.concat_batches(batches)
    except pa.ArrowException as error:
        raise TrainingError(f"the outputs of two batches have different types: {error}") from error


def _record_batch(outputs: Mapping[str, np.ndarray], start: int) -> pa.RecordBatch:
    counts = {len(array) if array.ndim else 0 for array in outputs.values()}
    if len(counts) != 1 or ROW in outputs:
        raise TrainingError(f"wanted outputs with one row a sample and none called {ROW}, found {sorted(outputs)}")
    columns = {ROW: pa.array(np.arange(start, start + counts.pop(), dtype=np.int64))}
    for name, output in outputs.items():
        column = pa.array(np.ascontiguousarray(output).reshape(-1))
        for size in reversed(output.shape[1:]):
            column = pa.FixedSizeListArray.from_arrays(column, size)
        columns[name] = column
    return pa.RecordBatch.from_arrays(list(columns.values()), list(columns))
