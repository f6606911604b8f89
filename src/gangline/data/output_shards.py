"""Outputs of a model as an Arrow file: one column an output, and the number of each row."""

from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa

from gangline.errors import ConfigError, TrainingError

ROW = "row"
"""Column with the number of the row in the shard of the same path that was scored."""
_ROWS_OF_BATCH = 4096
"""Fewest rows of one record batch, except for the last."""


def write_outputs(answers: Iterable[Mapping[str, np.ndarray]], into: Path) -> int:
    """Write outputs, batch by batch, into a file that appears whole; the number of rows.

    Raises:
        TrainingError: An output has not one row a sample, or changes its shape.
        ConfigError: There are no rows.
    """
    part, total = into.with_name(f"{into.name}.part"), 0
    writer, waiting, num_waiting = None, list[pa.RecordBatch](), 0
    with part.open("wb") as sink:
        for found in answers:
            table = _record_batch(found, total)
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
    counts = {len(each) if each.ndim else 0 for each in outputs.values()}
    if len(counts) != 1 or ROW in outputs:
        raise TrainingError(f"wanted outputs with one row a sample and none called {ROW}, found {sorted(outputs)}")
    columns = {ROW: pa.array(np.arange(start, start + counts.pop(), dtype=np.int64))}
    for name, each in outputs.items():
        column = pa.array(np.ascontiguousarray(each).reshape(-1))
        for size in reversed(each.shape[1:]):
            column = pa.FixedSizeListArray.from_arrays(column, size)
        columns[name] = column
    return pa.RecordBatch.from_arrays(list(columns.values()), list(columns))
