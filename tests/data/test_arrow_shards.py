"""Shards: equal rows give equal bytes however they arrive, and a row is read back as it was written."""

import itertools

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangline.data.arrow_rows import ArrowRows
from gangline.data.arrow_shards import ShardWriter, batches_of, check_shard, row_sizes
from gangline.errors import ConfigError, IntegrityError

TABLE = pa.table({
    "tokens": pa.FixedSizeListArray.from_arrays(pa.array(np.arange(40), pa.uint16()), 4),
    "image": pa.array([[[6 * n, 6 * n + 1, 6 * n + 2], [6 * n + 3, 6 * n + 4, 6 * n + 5]] for n in range(10)],
                      pa.list_(pa.list_(pa.uint8(), 3), 2)),
    "text": [f"line {n}" for n in range(10)],
    "raw": [bytes([n] * n) for n in range(10)],
    "ragged": pa.array([list(range(n)) for n in range(10)], pa.list_(pa.float32())),
    "label": pa.array(range(10), pa.int64()),
    "good": [n % 2 == 0 for n in range(10)],
})  # fmt: skip


def write(batches, *, shard_bytes=200, batch_bytes=80):
    shards = []
    writer = ShardWriter(
        batches[0].schema, lambda data, rows: shards.append((data, rows)), shard_bytes=shard_bytes,
        batch_bytes=batch_bytes,
    )  # fmt: skip
    for batch in batches:
        writer.write(batch)
    writer.close()
    return shards


def test_a_row_is_read_back_as_it_was_written(tmp_path):
    shards = write(TABLE.to_batches())
    assert len(shards) == 2
    number = 0
    for index, (data, rows) in enumerate(shards):
        path = tmp_path / f"{index}.arrow"
        path.write_bytes(data)
        assert check_shard(path, "x")[1] == rows
        with ArrowRows(path) as found:
            assert len(found) == rows
            for each in range(rows):
                row = found[each]
                assert row["tokens"].dtype == np.uint16
                assert row["tokens"].tolist() == list(range(4 * number, 4 * number + 4))
                assert row["image"].shape == (2, 3)
                assert row["image"].ravel().tolist() == list(range(6 * number, 6 * number + 6))
                assert (row["text"], row["raw"]) == (f"line {number}", bytes([number] * number))
                assert row["ragged"].tolist() == list(range(number))
                assert (row["label"].item(), row["good"].item()) == (number, number % 2 == 0)
                assert row["tokens"].flags.writeable
                assert row["label"].shape == ()
                number += 1
    assert number == 10
    with pytest.raises(IndexError, match="wanted a row below"):
        ArrowRows(tmp_path / "0.arrow")[10]


@given(cuts=st.lists(st.integers(0, 10), max_size=5), batch_bytes=st.integers(1, 400))
def test_shards_are_a_function_of_the_rows_alone(cuts, batch_bytes):
    whole = TABLE.combine_chunks().to_batches()[0]
    ends = sorted({0, *cuts, 10})
    pieces = [whole.slice(a, b - a) for a, b in itertools.pairwise(ends)]
    assert write(pieces, batch_bytes=batch_bytes) == write([whole], batch_bytes=batch_bytes)


def test_no_record_batch_is_above_its_bound_unless_one_row_is(tmp_path):
    for number, (data, _) in enumerate(write(TABLE.to_batches(), batch_bytes=120)):
        path = tmp_path / f"{number}.arrow"
        path.write_bytes(data)
        for batch in batches_of(path):
            assert int(row_sizes(batch).sum()) <= 120 or batch.num_rows == 1


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (pa.array([1, None, 3]), "found 1 nulls"),
        (pa.array([[1], [None], [3]], pa.list_(pa.int8())), "found 1 nulls"),
        (pa.array([{"a": 1}] * 3), "columns of numbers"),
        (pa.array([["a"]] * 3), "columns of numbers"),
        (pa.array(["a", "b", "a"]).dictionary_encode(), "columns of numbers"),
    ],
)
def test_a_file_with_other_rows_is_refused_by_name_and_not_read(tmp_path, column, message):
    path = tmp_path / "x.arrow"
    table = pa.table({"x": column})
    with pa.ipc.new_file(str(path), table.schema) as file:
        file.write_table(table)
    with pytest.raises(ConfigError, match=f"hdfs:x.arrow: .*{message}"):
        check_shard(path, "hdfs:x.arrow")
    with pytest.raises(IntegrityError, match=r"nulls|columns of numbers"):
        ArrowRows(path)[0]


def test_a_file_that_is_cut_empty_or_no_arrow_file_is_refused(tmp_path):
    path = tmp_path / "x.arrow"
    data = write(TABLE.to_batches())[0][0]
    for wrong in (b"", b"ARROW1", data[: len(data) // 2], b"x" * 1000):
        path.write_bytes(wrong)
        with pytest.raises(ConfigError, match="wanted an Arrow IPC file that is whole"):
            check_shard(path, "x.arrow")
        with pytest.raises(IntegrityError, match="wanted an Arrow IPC file"):
            ArrowRows(path)
    with pa.ipc.new_file(str(path), TABLE.schema):
        pass
    with pytest.raises(ConfigError, match="wanted rows, found none"):
        check_shard(path, "x.arrow")
    assert len(ArrowRows(path)) == 0


def test_offsets_that_leave_their_buffer_are_found_before_a_row_is_read(tmp_path):
    offsets, values = pa.array([0, 90, 4], pa.int32()).buffers()[1], pa.py_buffer(b"abcd")
    lying = pa.StringArray.from_buffers(2, offsets, values)
    path = tmp_path / "x.arrow"
    batch = pa.record_batch({"text": lying})
    with pa.ipc.new_file(str(path), batch.schema) as file:
        file.write_batch(batch)
    with pytest.raises(ConfigError, match="that is whole"):
        check_shard(path, "x.arrow")
