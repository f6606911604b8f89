"""Shards of data sets on this node: fetched from the store into the data folder of the gang, by digest."""

from collections.abc import Iterator

from gangline.data.cache import ShardCache
from gangline.errors import ConfigError, StorageError
from gangline.spec.dataset import DatasetShard
from gangline.train.runtime.context import RankContext

_BLOCK_BYTES = 16 << 20


def shard_files(context: RankContext) -> ShardCache:
    """Shards on this node, for one thread of this process."""

    def fetch(shard: DatasetShard) -> Iterator[bytes]:
        if shard.source is not None or context.store is None:
            raise ConfigError(f"shard {shard.path}: wanted a shard in the store, found one of source {shard.source}")
        for start in range(0, shard.size_bytes, _BLOCK_BYTES):
            blob = context.store.get(shard.key, start, _BLOCK_BYTES)
            if blob is None:
                raise StorageError(f"store {context.store.url}: shard {shard.path} ({shard.key}) does not exist")
            yield blob.data

    return ShardCache(context.data_folder / "shards", None, fetch, tell=context.events.emit)
