"""A version of a data set: its shards by digest, and where they came from. The document that `gangline data` signs."""

import json
import re
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Literal

from gangline.errors import IntegrityError
from gangline.spec.codec import Document
from gangline.spec.globs import is_inside

FORMAT = "gangline-dataset/1"
PREFIX = "datasets/"
"""First segment of all keys of data sets; no line and no site names a key below it."""
MOST_SHARDS = 100_000
MOST_ROWS = 10**10
"""Most rows of one version, in all its shards."""
MOST_MANIFEST_BYTES = 64 << 20
Split = Literal["train", "holdout"]

NAME = re.compile(r"[a-z][a-z0-9-]{0,39}")
_HEX = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, kw_only=True, slots=True)
class DatasetShard:
    """One Arrow IPC file of a version: a blob of the store, or a file that stays at its source."""

    path: str
    """Name inside the version, `000017.arrow`."""
    sha256: str
    size_bytes: int
    rows: int
    split: Split = "train"
    source: str | None = None
    """`[source.NAME]` of the site whose file it is; none: it is a blob of the store."""
    source_path: str = ""
    """Path below the URL of the source."""

    @property
    def key(self) -> str:
        """Key of the blob in the store."""
        return f"blobs/sha256/{self.sha256}"

    def __post_init__(self) -> None:
        if not is_inside(self.path) or not _HEX.fullmatch(self.sha256):
            raise IntegrityError(f"shard {self.path[:90]!r}: wanted a path that stays inside and a digest of 64 digits")
        if self.size_bytes < 1 or self.rows < 1:
            raise IntegrityError(f"shard {self.path}: wanted bytes and rows, found {self.size_bytes} and {self.rows}")
        if (self.source is None) != (not self.source_path) or not is_inside(self.source_path or "a"):
            raise IntegrityError(f"shard {self.path}: wanted a source with a path inside it, or neither")


@dataclass(frozen=True, kw_only=True, slots=True)
class DatasetOrigin:
    """What a version was made from: a run, files of a commit, a path of a source, or a model and its inputs."""

    run: str | None = None
    commit: str | None = None
    """Newest commit that changed the files; none: git does not track all of them as they are."""
    files: tuple[str, ...] = ()
    source: str | None = None
    path: str | None = None
    """Glob below the URL of the source."""
    model: str | None = None
    """`NAME VERSION` of the model whose outputs these are."""
    dataset: str | None = None
    """`NAME@VERSION` of the data set that the model answered, shard by shard."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Dataset(Document):
    """One version of a data set; its name is the first 8 digits of the digest of these bytes."""

    format: str = FORMAT
    name: str
    num_samples: int
    """Rows of all shards."""
    schema: tuple[tuple[str, str], ...]
    """Columns: name, and type as Arrow spells it."""
    shards: tuple[DatasetShard, ...]
    origin: DatasetOrigin = DatasetOrigin()
    options: dict[str, Any] = field(default_factory=dict)
    """Options that the files were packed with: tokens, digest of the tokenizer, holdout."""

    def __post_init__(self) -> None:
        if self.format != FORMAT or not NAME.fullmatch(self.name):
            raise IntegrityError(f"wanted a {FORMAT} with a name, found {self.format[:40]!r}, {self.name[:60]!r}")
        if not 1 <= len(self.shards) <= MOST_SHARDS:
            raise IntegrityError(f"{self.name}: wanted 1 to {MOST_SHARDS} shards, found {len(self.shards)}")
        rows = sum(shard.rows for shard in self.shards)
        if rows != self.num_samples or rows > MOST_ROWS:
            raise IntegrityError(f"{self.name}: wanted {self.num_samples} samples, its shards have {rows}")
        if len({shard.path for shard in self.shards}) != len(self.shards):
            raise IntegrityError(f"{self.name}: two shards have one path")

    @property
    def digest(self) -> str:
        """SHA-256 of the document, in hex."""
        return sha256(self.to_json()).hexdigest()

    @property
    def version(self) -> str:
        """First 8 digits of the digest."""
        return self.digest[:8]

    @property
    def key(self) -> str:
        """Key of the document in the store."""
        return dataset_key(self.name, self.version)


COLUMNS = "columns:"
"""First letters of a name that stands for the rows of a data set among names of data files."""


def columns_text(dataset: Dataset) -> str:
    """Name that stands for the rows of a data set where a model is traced: its columns as JSON."""
    return COLUMNS + json.dumps(dataset.schema)


def dataset_key(name: str, version: str) -> str:
    """Key of a version in the store; its signature has the same key with `.sig.json` at its end."""
    return f"{PREFIX}{name}/{version}.json"
