"""Files that lie about what they hold are refused by name, within bounded memory, and their reader alone ends."""

import os
import random
import signal
import time

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gangline.data import added as added_files
from gangline.data.added import AddedFile, add_files, check_apart, pieces_apart
from gangline.data.arrow_rows import ArrowRows
from gangline.data.journal import PackJournal
from gangline.errors import ConfigError
from gangline.spec.dataset import DatasetOrigin
from gangline.storage.folder.store import FolderStore

pytestmark = pytest.mark.row("DL8")


def arrow_file(table, **options):
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as file:
        file.write_table(table)
    return sink.getvalue().to_pybytes()


def parquet_file(table):
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, store_schema=False)
    return sink.getvalue().to_pybytes()


def added(tmp_path, *contents, in_place=None):
    files = [
        AddedFile(path=name, size_bytes=len(data), blocks=lambda data=data: iter([data])) for name, data in contents
    ]
    return add_files(
        files, name="wiki", origin=DatasetOrigin(), store=FolderStore(tmp_path / "store"),
        journal=PackJournal(tmp_path / "journal.jsonl"), folder=tmp_path, in_place=in_place,
    )  # fmt: skip


def numbers(count=1000):
    return pa.table({"x": np.arange(count)})


def wide():
    fields = pa.schema([(f"c{each}", pa.int8()) for each in range(100_000)])
    return pa.table([pa.array([1], pa.int8())] * 100_000, schema=fields)


def twice():
    return pa.table([pa.array([1]), pa.array([2])], names=["x", "x"])


WORDS = pa.DictionaryArray.from_arrays(pa.array(np.zeros(1000, np.int32)), pa.array(["a" * 10_000_000]))


@pytest.mark.parametrize(
    ("name", "make", "message"),
    [
        ("a.arrow", lambda: arrow_file(numbers())[:-700], "that is whole"),
        ("a.arrow", lambda: arrow_file(numbers())[:-10] + b"\xff\xff\xff\x7fARROW1", "that is whole"),
        ("a.arrow", lambda: arrow_file(twice()), "found two that are called 'x'"),
        ("a.arrow", lambda: arrow_file(wide()), "found 100000"),
        ("a.parquet", lambda: parquet_file(twice()), "found two that are called 'x'"),
        ("a.arrow", lambda: arrow_file(pa.table({"x": np.zeros(200_000_000)}), compression="zstd"), "needs more"),
        ("a.parquet", lambda: parquet_file(pa.table({"x": np.arange(1000)}))[:-300], "rows of one form"),
        ("a.parquet", lambda: parquet_file(pa.table({"x": WORDS})), "needs more"),
    ],
)  # fmt: skip
def test_a_file_that_lies_is_refused_by_name_and_nothing_is_stored(tmp_path, monkeypatch, name, make, message):
    monkeypatch.setattr(added_files, "MOST_READER_BYTES", 1 << 30)
    with pytest.raises(ConfigError, match=f"{name}: .*{message}"):
        added(tmp_path, (name, make()))
    assert not list(FolderStore(tmp_path / "store").list("blobs/"))


def test_footers_with_any_byte_changed_give_the_rows_or_an_error_of_the_file(tmp_path):
    data, dice, path = arrow_file(numbers()), random.Random(8), tmp_path / "x.arrow"
    refused = []
    for _ in range(40):
        broken = bytearray(data)
        broken[len(data) - dice.randint(1, 400)] ^= dice.randint(1, 255)
        path.write_bytes(broken)
        try:
            check_apart(path, "x.arrow")
        except ConfigError as error:
            refused.append(str(error))
    assert len(refused) > 5
    assert all(each.startswith("x.arrow: wanted ") for each in refused)


def test_compressed_rows_become_shards_that_ranks_map_and_cannot_stay_in_place(tmp_path):
    data = arrow_file(numbers(), compression="lz4")
    with pytest.raises(ConfigError, match=r"a\.arrow: wanted rows that ranks map, found compressed ones"):
        added(tmp_path, ("a.arrow", data), in_place="disk")
    made = added(tmp_path, ("a.arrow", data))
    assert [shard.path for shard in made.shards] == ["a.arrow-000.arrow"]
    rows = ArrowRows(tmp_path / "store" / made.shards[0].key)
    assert [int(row["x"]) for row in rows] == list(range(1000))


def killed(path, place):
    yield 1
    os.kill(os.getpid(), signal.SIGSEGV)


def sleeps(path, place):
    yield 1
    time.sleep(600)


def hungry(path, place):
    yield 1
    yield len(np.zeros(2 << 30, np.uint8))


def test_a_reader_that_needs_more_memory_than_it_may_is_an_error_of_the_file(tmp_path, monkeypatch):
    monkeypatch.setattr(added_files, "MOST_READER_BYTES", 1 << 30)
    pieces = pieces_apart(hungry, tmp_path, "hdfs:x.parquet")
    assert next(pieces) == 1
    with pytest.raises(ConfigError, match=r"hdfs:x\.parquet: wanted .*needs more"):
        next(pieces)


@pytest.mark.parametrize(
    ("read", "message"), [(killed, r"ends its reader \(-11\)"), (sleeps, "within 1 s, found none")]
)
def test_a_reader_that_crashes_or_hangs_is_an_error_of_the_file(tmp_path, monkeypatch, read, message):
    pieces = pieces_apart(read, tmp_path, "hdfs:x.parquet")
    assert next(pieces) == 1
    monkeypatch.setattr(added_files, "MOST_READER_SECONDS", 60.0 if read is killed else 1.0)
    with pytest.raises(ConfigError, match=f"hdfs:x.parquet: wanted .*{message}"):
        next(pieces)


LISTS = [pa.field(name, pa.int64(), nullable=can_be) for name in ("item", "element") for can_be in (True, False)]


@pytest.mark.parametrize("ending", ["arrow", "parquet"])
def test_what_a_writer_calls_the_entries_of_lists_makes_no_other_columns(tmp_path, ending):
    contents = []
    for number, kind in enumerate(LISTS):
        table = pa.table({"x": pa.array([[number], [number, 1]], pa.list_(kind))})
        sink = pa.BufferOutputStream()
        if ending == "parquet":
            pq.write_table(table, sink, use_compliant_nested_type=number % 2 == 0)
        data = arrow_file(table) if ending == "arrow" else sink.getvalue().to_pybytes()
        contents.append((f"{number}.{ending}", data))
    made = added(tmp_path, *contents)
    assert made.schema == (("x", "list<item: int64>"),)
    assert made.num_samples == 8
