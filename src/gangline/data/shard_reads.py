"""Bytes of a shard from where it lies: the store, or the source that it stays in."""

from collections.abc import Callable, Iterator
from hashlib import sha256
from typing import TYPE_CHECKING

from gangline.errors import IntegrityError
from gangline.spec.dataset import DatasetShard
from gangline.storage.objects.blobs import object_blocks
from gangline.storage.objects.protocol import ObjectStore

if TYPE_CHECKING:
    from gangline.data.sources import Source

SourceOf = Callable[[str], "Source"]
"""Opens a source of the site by its name."""


def shard_blocks(store: ObjectStore, shard: DatasetShard, source_of: SourceOf) -> Iterator[bytes]:
    """All bytes of a shard, not verified; raises StorageError if it is missing, or store or source failed."""
    if shard.source is not None:
        return source_of(shard.source).blocks(shard.source_path)
    return object_blocks(store, shard.key, shard.size_bytes, name=f"shard {shard.path}")


def verify_shard(store: ObjectStore, shard: DatasetShard, source_of: SourceOf) -> None:
    """Raises IntegrityError unless a shard has its size and digest; the message names shard and both digests."""
    found, size = sha256(), 0
    for block in shard_blocks(store, shard, source_of):
        found.update(block)
        size += len(block)
    if (size, found.hexdigest()) != (shard.size_bytes, shard.sha256):
        raise IntegrityError(
            f"shard {shard.path} of {shard.source or 'the store'}: wanted {shard.size_bytes} bytes of digest"
            f" {shard.sha256}, found {size} of {found.hexdigest()}; restore it, or add the data set again"
        )
