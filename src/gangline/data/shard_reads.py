"""Bytes of a shard from where it lies: the store, or the source that it stays in."""

from collections.abc import Callable, Iterator
from hashlib import sha256
from typing import Protocol

from gangline.errors import IntegrityError, StorageError
from gangline.spec.dataset import DatasetShard
from gangline.storage.objects.protocol import ObjectStore

BLOCK_BYTES = 8 << 20


class BlockSource(Protocol):
    """Source of a site: `data.sources.Source`."""

    def blocks(self, path: str) -> Iterator[bytes]:
        """All bytes of a file, in pieces."""
        ...


def shard_blocks(store: ObjectStore, shard: DatasetShard, source_of: Callable[[str], BlockSource]) -> Iterator[bytes]:
    """All bytes of a shard, not verified.

    Args:
        source_of: Opens a source of the site by its name.

    Raises:
        StorageError: The shard is missing, or store or source failed.
    """
    if shard.source is not None:
        yield from source_of(shard.source).blocks(shard.source_path)
        return
    for start in range(0, shard.size_bytes, BLOCK_BYTES):
        blob = store.get(shard.key, start, min(BLOCK_BYTES, shard.size_bytes - start))
        if blob is None:
            raise StorageError(
                f"{store.url}: shard {shard.path} is missing: wanted {shard.key}; add the data set again"
            )
        yield blob.data


def verify_shard(store: ObjectStore, shard: DatasetShard, source_of: Callable[[str], BlockSource]) -> None:
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
