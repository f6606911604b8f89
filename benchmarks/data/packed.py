"""Token shards for the benchmarks of data sets, and their version as ranks read it."""

from collections.abc import Callable, Iterable
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from gangline.data.arrow_shards import ShardWriter
from gangline.spec.data_source import DatasetUse, DataSource
from gangline.spec.dataset import Dataset, DatasetShard
from gangline.train.runtime.datasets import RankDatasets, ShardFiles

TOKENS = 1025


def pack(folder: Path, *, rows: int, shard_bytes: int, seed: int) -> Dataset:
    """Write shards of random tokens as `data pack` writes them; the version of all of them."""
    schema = pa.schema([("tokens", pa.list_(pa.uint16(), TOKENS))])
    draws, shards = np.random.default_rng(seed), list[DatasetShard]()
    folder.mkdir(parents=True)

    def keep(data: bytes, count: int) -> None:
        digest = sha256(data).hexdigest()
        (folder / digest).write_bytes(data)
        shards.append(DatasetShard(path=f"{len(shards):06d}.arrow", sha256=digest, size_bytes=len(data), rows=count))

    writer = ShardWriter(schema, keep, shard_bytes=shard_bytes, batch_bytes=min(shard_bytes, 4_000_000))
    for start in range(0, rows, 1024):
        flat = draws.integers(0, 50_000, size=min(1024, rows - start) * TOKENS, dtype=np.uint16)
        column = pa.FixedSizeListArray.from_arrays(pa.array(flat), TOKENS)
        writer.write(pa.RecordBatch.from_arrays([column], schema=schema))
    writer.close()
    return Dataset(name="tokens", num_samples=rows, schema=(("tokens", "list"),), shards=tuple(shards))


def opened(
    dataset: Dataset, open_files: Callable[[], ShardFiles], *, global_batch: int, window: int = 8, parts: int = 1,
    ahead: bool = False,
) -> RankDatasets:  # fmt: skip
    """The version as a rank has it; `holdout` keeps one row back."""
    use = DatasetUse(
        name=dataset.name, version=dataset.version, digest=dataset.digest, num_samples=dataset.num_samples, size_bytes=1
    )
    source = DataSource(sets=(use,), order="window", window=window, parts=parts, holdout=1e-9)
    return RankDatasets(source, [dataset], open_files, global_batch=global_batch, fetches_ahead=ahead)


def collate(rows: Iterable[dict[str, Any]]) -> torch.Tensor:
    return torch.stack([torch.from_numpy(row["tokens"]) for row in rows])
