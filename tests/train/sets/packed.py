"""A small data set in a store, made without the packer."""

from hashlib import sha256

import pyarrow as pa

from gangline.spec.data_source import DatasetUse, DataSource
from gangline.spec.dataset import Dataset, DatasetShard


def arrow_file(first, rows, text=""):
    """Rows that know their number: `id`, and `tokens` as a token set has them."""
    ids = range(first, first + rows)
    tokens = pa.FixedSizeListArray.from_arrays(
        pa.array([each % 50 for one in ids for each in (one, 2 * one)], pa.uint16()), 2
    )
    columns = {"id": pa.array(ids, pa.int64()), "tokens": tokens} | ({"text": pa.array([text] * rows)} if text else {})
    batch = pa.RecordBatch.from_pydict(columns)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, batch.schema) as writer:
        for start in range(0, rows, 4):
            writer.write_batch(batch.slice(start, 4))
    return sink.getvalue().to_pybytes()


def put_dataset(store, name="numbers", **options):
    """A version that ranks can read."""
    dataset = dataset_of(store, name, **options)
    store.put(f"blobs/sha256/{dataset.digest}", dataset.to_json())
    return dataset


def dataset_of(store, name="numbers", *, shards=6, rows=5, holdout=1, first=0):
    """A version of `shards` + `holdout` shards, whose bytes are in the store; its rows are numbered from `first`."""
    found = []
    for number in range(shards + holdout):
        data = arrow_file(first + number * rows, rows)
        digest = sha256(data).hexdigest()
        store.put(f"blobs/sha256/{digest}", data)
        found.append(
            DatasetShard(
                path=f"{number:06d}.arrow", sha256=digest, size_bytes=len(data), rows=rows,
                split="train" if number < shards else "holdout",
            )
        )  # fmt: skip
    schema = (("id", "int64"), ("tokens", "fixed_size_list<element: uint16>[2]"))
    return Dataset(name=name, num_samples=rows * (shards + holdout), schema=schema, shards=tuple(found))


def source_of(*datasets, weights=None, **options):
    """Data of a plan that trains on these."""
    uses = tuple(
        DatasetUse(
            name=each.name, version=each.version, digest=each.digest,
            num_samples=sum(shard.rows for shard in each.shards if shard.split == "train"),
            size_bytes=sum(shard.size_bytes for shard in each.shards), weight=weight,
        )
        for each, weight in zip(datasets, weights or [1.0] * len(datasets), strict=True)
    )  # fmt: skip
    return DataSource(sets=uses, digest="0" * 64, **{"order": "window", "window": 2, **options})
