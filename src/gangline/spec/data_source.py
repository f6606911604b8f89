"""Data of a plan: files that are fetched before the first step, or versions of data sets read while training."""

from dataclasses import dataclass
from typing import Literal

Order = Literal["window", "full", "file"]
"""Order of samples: groups of shards shuffled together, one permutation of all, or as they lie in the files."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DataFile:
    """One file of the data, by digest."""

    path: str
    """Path below the data folder of the gang: the one that the task sees."""
    key: str
    """`blobs/sha256/<digest>` in the store."""
    size_bytes: int


@dataclass(frozen=True, kw_only=True, slots=True)
class DatasetUse:
    """A version that a plan trains on; the ranks read its document from the store and check its digest."""

    name: str
    version: str
    digest: str
    """SHA-256 of the document."""
    num_samples: int
    """Rows of its train shards."""
    size_bytes: int
    """Bytes of all its shards."""
    weight: float = 1.0
    """Share of the samples, relative to the other data sets of the plan."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DataSource:
    """Resolved training data: files of the code layer or the store, all by digest."""

    files: tuple[DataFile, ...] = ()
    digest: str = ""
    """SHA-256 over the sorted (path, sha256, size) of `files`, and of `tracked` below `code/`."""
    holdout: float = 0.1
    """Tail of the data kept for evaluation."""
    sets: tuple[DatasetUse, ...] = ()
    """Versions of data sets, read shard by shard while training; never together with `files`."""
    tracked: tuple[DataFile, ...] = ()
    """Files that the commit names by digest (DVC, Git LFS), at their paths in the code of the gang."""
    order: Order = "full"
    window: int = 8
    parts: int = 1
    workers: int = 0
    """Processes of a rank that read and decode samples; 0: the rank itself."""
    prefetch: int = 2
    """Batches that each worker reads ahead."""
