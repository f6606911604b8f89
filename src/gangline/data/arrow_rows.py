"""Rows of a shard by number: the file is mapped into memory, and a batch of rows is copied once."""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import pyarrow as pa

from gangline.data.arrow_shards import check_schema, count_nulls, entries_of, is_text_or_bytes
from gangline.errors import ConfigError, IntegrityError

Row = dict[str, "np.ndarray[Any, Any] | bytes | str"]


class ArrowRows:
    """Rows of one shard by number; the file is mapped into memory, and only what is read takes any."""

    def __init__(self, path: Path, *, signed: bool = False) -> None:
        """
        Args:
            path: An Arrow IPC file.
            signed: Unsigned integers of more than 8 bits are read as int64, which torch can look up.

        Raises:
            IntegrityError: The file is no Arrow IPC file, or its rows have nulls or columns of another kind.
        """
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
        self._path, self._signed = path, signed
        self._starts: list[int] = [0, *accumulate(batch.num_rows for batch in self._batches)]
        self._columns: dict[int, dict[str, _Column]] = {}
        """Columns that were read, by number of their batch."""

    def __len__(self) -> int:
        return self._starts[-1]

    def __getitem__(self, index: int) -> Row:
        """Values of a row, each an array of its own, bytes or text."""
        columns, row = self.locate(index)
        return {name: column.value(row) for name, column in columns.items()}

    def locate(self, index: int) -> "tuple[dict[str, _Column], int]":
        """Columns of the record batch that has a row, and the number of the row in it."""
        if not 0 <= index < self._starts[-1]:
            raise IndexError(f"{self._path}: wanted a row below {len(self)}, found {index}")
        number = bisect_right(self._starts, index) - 1
        columns = self._columns.get(number)
        if columns is None:
            batch = self._batches[number]
            if any(map(count_nulls, batch.columns)):
                raise IntegrityError(f"{self._path}: wanted rows without nulls, found nulls in a record batch")
            pairs = zip(batch.schema.names, batch.columns, strict=True)
            columns = self._columns[number] = {name: _Column(each, signed=self._signed) for name, each in pairs}
        return columns, index - self._starts[number]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Give the mapping back, once no row that was read needs it; rows are copies."""
        self._columns.clear()
        self._batches.clear()
        self._map.close()


class _Column:
    """Values of one column of a record batch."""

    def __init__(self, column: pa.Array, *, signed: bool) -> None:
        self.dtype: np.dtype[Any] | None = None
        """Type of the arrays that are read; None: values are text or bytes."""
        kind = column.type
        if is_text_or_bytes(kind):
            self.view: Callable[[int], Any] = lambda row: column[row].as_py()
            """Value of a row: an array that lies in the file and has its dtype, or text or bytes."""
            return
        if pa.types.is_list(kind) or pa.types.is_large_list(kind):
            offsets, numbers = column.offsets.to_numpy(), column.values.to_numpy(zero_copy_only=False)
            self.view = lambda row: numbers[offsets[row] : offsets[row + 1]]
        else:
            shape, inner = entries_of(kind)[0], column
            for _ in shape:
                inner = inner.flatten()
            numbers = inner.to_numpy(zero_copy_only=False).reshape([len(column), *shape])
            self.view = numbers.__getitem__
        is_wide = numbers.dtype.kind == "u" and numbers.dtype.itemsize > 1
        self.dtype = np.dtype(np.int64) if signed and is_wide else numbers.dtype

    def value(self, row: int) -> "np.ndarray[Any, Any] | bytes | str":
        """Value of a row as an array of its own, as bytes or as text."""
        view = self.view(row)
        return view if self.dtype is None else np.array(view, dtype=self.dtype)


def stacked(rows: "Sequence[tuple[dict[str, _Column], int]]") -> "dict[str, np.ndarray[Any, Any] | list[Any]]":
    """Columns of rows that `locate` found, each number copied once; columns of text or bytes are lists.

    Raises:
        ValueError: Lists of a column differ in length, or the rows have other columns.
    """
    tables = list({id(columns): columns for columns, _ in rows}.values())
    if any(table.keys() != tables[0].keys() for table in tables):
        raise ValueError("rows of different columns")
    batch: dict[str, Any] = {}
    for name, column in tables[0].items():
        batch[name] = [columns[name].view(row) for columns, row in rows]
        if column.dtype is not None:
            dtype = np.result_type(*{columns[name].dtype for columns in tables})
            batch[name] = np.stack(batch[name], dtype=dtype)
    return batch
