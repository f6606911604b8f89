"""Data sets on a rank: rows by number, shards that are opened late and let go, what comes next fetched ahead."""

import threading
import time
from hashlib import sha256

import numpy as np
import pyarrow as pa
import pytest
import torch
from tests.train.sets.packed import dataset_of, source_of
from torch.utils.data import default_collate

from gangline.errors import ConfigError, StorageError
from gangline.spec.dataset import DatasetShard
from gangline.storage.folder.store import FolderStore
from gangline.train.loop.batches import _read
from gangline.train.runtime.datasets import (
    DatasetRows,
    OpenShards,
    RankDatasets,
    ShardSpan,
    WindowFetcher,
    put_shards,
    split_pieces,
)


class Files:
    """Shards in a folder, which remembers what it was asked for."""

    def __init__(self, store, folder):
        self.store, self.folder, self.asked, self.held = store, folder, [], []
        folder.mkdir(exist_ok=True)

    def file(self, shard):
        self.asked.append(shard.path)
        path = self.folder / shard.sha256
        path.write_bytes(self.store.get(shard.key).data)
        return path

    def hold(self, shards):
        self.held.append([each.path for each in shards])


@pytest.fixture
def store(tmp_path):
    return FolderStore(tmp_path / "store")


@pytest.fixture
def files(store, tmp_path):
    return Files(store, tmp_path / "files")


def opened(files, *documents, batch=4, **options):
    weights = options.pop("weights", None)
    return RankDatasets(source_of(*documents, weights=weights, **options), documents, lambda: files, global_batch=batch)


def numbers(rows):
    return [int(rows[each]["id"]) for each in range(len(rows))]


def test_splits_have_the_rows_of_their_shards_set_by_set(store, files):
    sets = opened(files, dataset_of(store, shards=2, rows=3), dataset_of(store, "more", shards=1, rows=2, first=100))
    assert numbers(sets.train) == [0, 1, 2, 3, 4, 5, 100, 101]
    assert numbers(sets.split("holdout")) == [6, 7, 8, 102, 103]
    with pytest.raises(IndexError, match="below 8, found 8"):
        sets.train[8]
    assert sets.train[0]["tokens"].dtype == np.int64, "torch looks up no unsigned integers"


COLUMNS = {
    "label": pa.array(range(6), pa.uint32()), "weight": pa.array([n / 2 for n in range(6)], pa.float32()),
    "good": pa.array([n % 2 == 0 for n in range(6)]), "text": pa.array([f"line {n}" for n in range(6)]),
    "raw": pa.array([bytes([n] * n) for n in range(6)]),
    "even": pa.array([[n, n] for n in range(6)], pa.list_(pa.int8())),
    "image": pa.array([[[n, 1], [2, n]] for n in range(6)], pa.list_(pa.list_(pa.uint16(), 2), 2)),
}  # fmt: skip


def rows_of(tmp_path, *tables, most=16):
    """Rows of a shard for each table."""
    store, shards = FolderStore(tmp_path / "store"), []
    for number, table in enumerate(tables):
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table, max_chunksize=2)
        data = sink.getvalue().to_pybytes()
        digest = sha256(data).hexdigest()
        store.put(f"blobs/sha256/{digest}", data)
        shards.append(DatasetShard(path=f"{number}.arrow", sha256=digest, size_bytes=len(data), rows=len(table)))
    pieces = [ShardSpan(0, shard, 0, shard.rows) for shard in shards]
    return DatasetRows(pieces, OpenShards(Files(store, tmp_path / "files"), most=most))


@pytest.mark.parametrize("most", [1, 16])
def test_a_batch_is_that_of_its_rows_one_by_one(tmp_path, most):
    table = pa.table(COLUMNS)
    rows = rows_of(tmp_path, table, table.slice(3), table.slice(0, 2), most=most)
    numbers = [10, 0, 6, 5, 5, 8, 1]
    found, wanted = rows.batch(numbers), default_collate([rows[each] for each in numbers])
    assert found.keys() == wanted.keys()
    for name, values in wanted.items():
        if isinstance(values, list):
            assert found[name] == values
        else:
            batch = torch.from_numpy(found[name])
            assert (batch.dtype, batch.tolist()) == (values.dtype, values.tolist()), name


def test_rows_that_make_no_batch_are_named(tmp_path):
    lists = pa.table({"x": pa.array([[1], [1, 2], [3]], pa.list_(pa.int8()))})
    more = lists.append_column("y", pa.array([1, 2, 3]))
    for numbers, message in (((0, 1), "'x' has the shapes"), ((2, 3), "keys")):
        rows = rows_of(tmp_path, lists, more)
        with pytest.raises(ValueError, match=r"different columns|same shape"):
            rows.batch(numbers)
        with pytest.raises(ConfigError, match=message):
            _read(rows, None, [(0, each) for each in numbers])


@pytest.mark.parametrize(("holdout", "trained"), [(0.25, 9), (0.5, 6), (0.001, 11)])
def test_a_version_without_held_out_shards_holds_back_its_last_rows(store, files, holdout, trained):
    sets = opened(files, dataset_of(store, shards=3, rows=4, holdout=0), holdout=holdout)
    assert numbers(sets.train) == list(range(trained))
    assert numbers(sets.holdout) == list(range(trained, 12))


def test_a_version_of_one_row_is_trained_on(store):
    dataset = dataset_of(store, shards=1, rows=1, holdout=0)
    assert [len(split_pieces(0, dataset, split, holdout=0.1)) for split in ("train", "holdout")] == [1, 0]


def test_shards_that_were_used_last_stay_open_and_the_others_are_let_go(store, files):
    dataset = dataset_of(store, shards=6, rows=1)
    shards = OpenShards(files, most=4)
    for number in (0, 1, 2, 3, 0, 4):
        assert shards.rows(dataset.shards[number])[0]["id"] == number
    assert files.held == [["000003.arrow", "000000.arrow", "000004.arrow"]]
    assert shards.rows(dataset.shards[1])[0]["id"] == 1, "and are opened again"
    assert files.asked.count("000000.arrow") == 1


def test_the_order_is_of_data_with_a_sample_a_row_and_fetches_before_it_answers(store, files):
    sets = opened(files, dataset_of(store, shards=4, rows=3))
    order = sets.order_of(sets.train, seed=1)
    first = order.samples([0])[0]
    assert files.asked == [sets.train.locate(first)[0].shard.path]
    assert sorted(order.samples(range(12))) == list(range(12))
    assert sets.order_of(list(range(11)), seed=1) is None
    assert sets.order_of(type("Own", (list,), {"epoch_order": None})(range(12)), seed=1) is None
    assert sets.train.order_of(sets.train, seed=1).samples([0]) == [first]


def until(condition):
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_the_next_window_is_fetched_in_a_thread_and_an_error_there_is_left_to_the_reader(store, files):
    dataset = dataset_of(store, shards=4, rows=1)
    broken = threading.Event()

    class Breaking(Files):
        def file(self, shard):
            if shard.path == "000001.arrow" and not broken.is_set():
                broken.set()
                raise StorageError("away")
            return super().file(shard)

    own = Breaking(store, files.folder)
    ahead = WindowFetcher(lambda: own)
    ahead.want(list(dataset.shards[:3]))
    until(broken.is_set)
    ahead.want(list(dataset.shards[1:4]))
    until(lambda: own.asked[-1:] == ["000003.arrow"])
    assert own.held[-1] == ["000001.arrow", "000002.arrow", "000003.arrow"]


def test_the_first_rank_of_a_node_fetches_what_its_parts_read_next(store, files):
    dataset = dataset_of(store, shards=8, rows=2)
    sets = RankDatasets(
        source_of(dataset, parts=2, window=2), [dataset], lambda: files, global_batch=4, fetches_ahead=True
    )
    order = sets.order_of(sets.train, seed=1, places=(0, 1))
    order.samples([0])
    until(lambda: len(set(files.asked)) == 4)
    time.sleep(0.05)
    assert len(set(files.asked)) == 4, "two windows of the own part, none of the other"


def test_programs_find_all_shards_as_files_by_name_and_split(store, files, tmp_path):
    dataset = dataset_of(store, shards=2, rows=2)
    paths = put_shards([dataset], files, tmp_path / "data")
    ends = ["numbers/holdout/000002.arrow", "numbers/train/000000.arrow", "numbers/train/000001.arrow"]
    assert paths == [str(tmp_path / "data" / each) for each in ends]
    assert put_shards([dataset], files, tmp_path / "data") == paths
    assert len(files.asked) == 3, "what is there is not fetched again"
    sizes = {each.path: each.size_bytes for each in dataset.shards}
    (tmp_path / "data" / ends[1]).write_bytes(b"cut short")
    put_shards([dataset], files, tmp_path / "data")
    assert (tmp_path / "data" / ends[1]).stat().st_size == sizes["000000.arrow"]
