"""Stand-ins for rows of a data set have the columns, shapes and types of real ones."""

import numpy as np
import pytest
from tests.train.sets.packed import dataset_of

from gangline.measure.model_traces import SampleRows
from gangline.spec.dataset import COLUMNS, columns_text
from gangline.storage.folder.store import FolderStore
from gangline.train.runtime.datasets import DatasetRows, OpenShards, ShardSpan


def test_stand_ins_look_like_the_rows_that_ranks_read(tmp_path):
    store = FolderStore(tmp_path / "store")
    dataset = dataset_of(store, shards=1, rows=2)

    class Files:
        def file(self, shard):
            (tmp_path / "shard").write_bytes(store.get(shard.key).data)
            return tmp_path / "shard"

    rows = DatasetRows([ShardSpan(0, dataset.shards[0], 0, 2)], OpenShards(Files(), most=2))
    real, made = rows[0], SampleRows(columns_text(dataset))[0]
    assert {name: (value.shape, value.dtype) for name, value in made.items()} == {
        name: (value.shape, value.dtype) for name, value in real.items()
    }


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("string", ""), ("large_binary", b""), ("double", np.float64(0)), ("halffloat", np.float16(0)),
        ("bool", np.bool_(0)), ("list<item: float>", np.zeros(1, "float32")), ("uint8", np.uint8(0)),
        ("fixed_size_list<item: fixed_size_list<item: uint8>[3]>[2]", np.zeros((2, 3), "uint8")),
    ],
)  # fmt: skip
def test_each_type_has_its_value(kind, value):
    found = SampleRows(f'{COLUMNS}[["a", "{kind}"]]')[0]["a"]
    assert type(found) is type(value) or found.shape == value.shape
    assert getattr(found, "dtype", None) == getattr(value, "dtype", None)


def test_there_are_some_rows_and_no_more():
    rows = SampleRows(f'{COLUMNS}[["a", "int64"]]')
    assert len(list(rows)) == len(rows)
