"""Shards of data sets on this node: a cache for the processes of a rank, filled from the store or from a source."""

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from gangline.data.cache import ShardCache
from gangline.data.shard_reads import shard_blocks
from gangline.data.sources import Source, open_source
from gangline.errors import ConfigError
from gangline.spec.dataset import DatasetShard
from gangline.spec.gang.driver_orders import ShardAccess
from gangline.storage.objects.protocol import ObjectStore
from gangline.train.account.event_log import EventLog

_FOLDER = "shards"
"""Folder of the gang's own cache, in its data folder."""


class ShardReaderContext(Protocol):
    """What a process of a rank knows of shards: a `RankContext`, or the part of it that a `Program` has."""

    events: EventLog
    data_folder: Path
    store: ObjectStore | None
    open_store: Callable[[], ObjectStore] | None
    shards: ShardAccess
    secrets: Path | None


def shard_files(context: ShardReaderContext) -> ShardCache:
    """A cache for one thread of this process or of its workers; events are of this process alone.

    Without a cache of the site it is in the gang's folder, which the ranks of a node share.
    """
    access, process = context.shards, os.getpid()
    folder = Path(access.cache) if access.cache else context.data_folder / _FOLDER

    def tell(event: str, **fields: Any) -> None:
        if os.getpid() == process:
            context.events.emit(event, **fields)

    return ShardCache(folder, access.cache_bytes, _ShardReader(context).blocks, tell=tell)


class _ShardReader:
    """Reads shards where they lie; a process that was forked opens connections of its own."""

    def __init__(self, context: ShardReaderContext) -> None:
        self._context = context
        self._process = os.getpid()
        self._store = context.store
        self._sources: dict[str, Source] = {}

    def blocks(self, shard: DatasetShard) -> Iterator[bytes]:
        """All bytes of a shard, in pieces, not verified.

        Raises:
            ConfigError: It lies at a source that this gang may not read.
            StorageError: The store or source failed, or lacks it.
        """
        if self._process != os.getpid():
            self._process, self._sources = os.getpid(), {}
            self._store = self._context.open_store() if self._context.open_store else self._store
        if self._store is None:
            raise ConfigError(f"shard {shard.path}: wanted a store, found none; data sets are read in a gang alone")
        return shard_blocks(self._store, shard, self._source)

    def _source(self, name: str) -> Source:
        if name not in self._sources:
            table = self._context.shards.sources.get(name)
            if table is None:
                raise ConfigError(
                    f"data set: wanted source {name} of its shards, found none that this gang may read; in site.toml"
                    f" source.{name}.ranks = true lets own commits; or add the data set without --in-place"
                )
            if table.credentials and self._context.secrets:
                table = replace(table, credentials=f"secret:file:{self._context.secrets / table.credentials}")
            self._sources[name] = open_source(name, table, {})
        return self._sources[name]
