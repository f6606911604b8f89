"""Pack of files into a version: rows or sequences of tokens in shards, each stored as a blob and journalled.

Rows are numbered over all files. A number alone decides whether its row is held out, and shards are cut by their rows,
so the same files and options give the same version. A second call reads the journal, and continues with the rows of the
shards that were open: of each split, the first row of its next shard is known.
"""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from gangline.data.arrow_shards import SHARD_BYTES, ShardWriter, column_types
from gangline.data.journal import PackJournal
from gangline.data.packed_inputs import open_input
from gangline.errors import ConfigError, NotInstalledError
from gangline.spec.codec import from_plain, to_plain
from gangline.spec.dataset import MOST_ROWS, MOST_SHARDS, Dataset, DatasetOrigin, DatasetShard, Split
from gangline.storage.objects.blobs import put_blob
from gangline.storage.objects.protocol import ObjectStore

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
"""2^64 divided by the golden ratio: multiples of it fall evenly, and with no period that data could have."""
_END = 1 << 62
"""Number of a row that no input has."""
ENDS = ("<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "[SEP]")
"""Tokens that end a document, as tokenizers call them."""


@dataclass(frozen=True, slots=True)
class TextTokenizer:
    """A tokenizer, and the token that it puts after each text."""

    tokenizer: Any
    digest: str
    """SHA-256 of its file."""
    end: str
    end_id: int
    dtype: str
    """`uint16` where all ids fit, else `uint32`."""

    @staticmethod
    def open(path: Path, end: str | None = None) -> "TextTokenizer":
        """The tokenizer of a file; `end`: token after each text, by default the one that its vocabulary has.

        Raises:
            ConfigError: The file is none of a tokenizer, has no such token, or the library is not installed.
        """
        try:
            from tokenizers import Tokenizer
        except ImportError as error:
            raise NotInstalledError(
                f"--tokens needs the library tokenizers, {error}; pip install tokenizers, or gangline[transformers]"
            ) from error
        try:
            data = path.read_bytes()
            tokenizer = Tokenizer.from_buffer(data)
        except Exception as error:  # the library raises plain Exception
            raise ConfigError(f"{path}: wanted a tokenizer.json, found: {str(error)[:300]}") from error
        tokenizer.no_truncation()
        tokenizer.no_padding()
        names = ENDS if end is None else (end,)
        known = next(((name, id_) for name in names if (id_ := tokenizer.token_to_id(name)) is not None), None)
        if known is None:
            raise ConfigError(
                f"{path}: wanted a token that ends a text ({', '.join(names)}), found none; say --end TOKEN"
            )
        dtype = "uint16" if tokenizer.get_vocab_size() <= 1 << 16 else "uint32"
        return TextTokenizer(tokenizer, sha256(data).hexdigest(), *known, dtype)

    def encode(self, texts: Sequence[str]) -> "tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]":
        """Ids of all texts in a row, each with the end behind it, and the number of ids of each."""
        rows = [each.ids for each in self.tokenizer.encode_batch(texts, add_special_tokens=False)]
        flat = [one for row in rows for one in (*row, self.end_id)]
        return np.asarray(flat, dtype=self.dtype), np.asarray([len(row) + 1 for row in rows], dtype=np.int64)


@dataclass(frozen=True, kw_only=True, slots=True)
class PackOptions:
    """How files become samples."""

    tokens: int | None = None
    """Tokens of a sample that a model reads; it has one more, the last to predict. None: a row is a sample."""
    tokenizer: TextTokenizer | None = None
    column: str = "text"
    """Column that is tokenized."""
    holdout: float = 0.0
    """Share of the rows kept for evaluation."""
    shard_bytes: int = SHARD_BYTES

    def plain(self) -> dict[str, Any]:
        """Options as the document of the version has them."""
        made: dict[str, Any] = {"holdout": self.holdout, "shard_bytes": self.shard_bytes}
        if self.tokenizer is None:
            return made
        tokenizer = self.tokenizer
        return {
            **made,
            "tokens": self.tokens,
            "tokenizer": tokenizer.digest,
            "end": tokenizer.end,
            "column": self.column,
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class PackProgress:
    """How far a pack is."""

    done_bytes: int
    total_bytes: int
    shards: int
    samples: int


def pack(
    files: Sequence[Path], options: PackOptions, *, name: str, origin: DatasetOrigin, store: ObjectStore,
    journal: PackJournal, notify: Callable[[PackProgress], object] = lambda _: None,
) -> Dataset:  # fmt: skip
    """The document of a version whose shards are stored; the caller signs and writes it, then removes the journal.

    Raises:
        ConfigError: A file has another form than those before it, rows have nulls, or there are no samples.
    """
    column = options.column if options.tokenizer is not None else None
    schema, _ = open_input(files[0], None, column)
    splits: tuple[Split, ...] = ("train", "holdout") if options.holdout else ("train",)
    streams = {split: _SplitStream(split, options, schema, store, journal) for split in splits}
    sizes = [path.stat().st_size for path in files]
    ends = {entry["file"]: entry["rows"] for entry in journal.entries if "file" in entry}
    first = min(stream.next_row for stream in streams.values())
    row = 0
    for index, path in enumerate(files):
        if index in ends and ends[index] <= first:
            row = ends[index]
            continue
        _, batches = open_input(path, schema, column)
        before = done = sum(sizes[:index])
        for batch in batches:
            held = _held_out(row, batch.num_rows, options.holdout)
            numbers = np.arange(row, row + batch.num_rows)
            for split, stream in streams.items():
                stream.feed(batch, numbers, held if split == "holdout" else ~held)
            row, done = row + batch.num_rows, min(done + batch.nbytes, before + sizes[index])
            shards = sum(len(stream.shards) for stream in streams.values())
            notify(PackProgress(done_bytes=done, total_bytes=sum(sizes), shards=shards, samples=row))
        if index not in ends:
            journal.add({"file": index, "rows": row})
    for stream in streams.values():
        stream.close()
    return _document(name, origin, options, streams)


def _document(name: str, origin: DatasetOrigin, options: PackOptions, streams: "dict[Split, _SplitStream]") -> Dataset:
    train = streams["train"]
    shards = [shard for stream in streams.values() for shard in stream.shards]
    if not train.shards:
        wanted = f"texts of {options.tokens + 1} tokens together" if options.tokens else "rows"
        raise ConfigError(f"{name}: wanted {wanted}, found fewer in all files; a set without samples trains nothing")
    samples = sum(shard.rows for shard in shards)
    if len(shards) > MOST_SHARDS or samples > MOST_ROWS:
        raise ConfigError(f"{name}: wanted at most {MOST_SHARDS} shards, found {len(shards)}; raise --shard-bytes")
    return Dataset(
        name=name, num_samples=samples, schema=column_types(train.schema), shards=tuple(shards), origin=origin,
        options=options.plain(),
    )  # fmt: skip


def _held_out(first: int, count: int, share: float) -> "np.ndarray[Any, Any]":
    """Whether each row is held out, by its number alone."""
    if not share:
        return np.zeros(count, dtype=bool)
    numbers = np.arange(first + 1, first + 1 + count, dtype=np.uint64)
    return numbers * _GOLDEN < np.uint64(int(share * 2.0**64))


@dataclass
class _SplitStream:
    """Rows of one split as one stream of elements (rows, or tokens), cut into samples and shards."""

    split: Split
    options: PackOptions
    input_schema: pa.Schema
    store: ObjectStore
    journal: PackJournal
    shards: list[DatasetShard] = field(default_factory=list)
    next_row: int = 0
    """First row of the input that is not wholly in `shards`."""

    def __post_init__(self) -> None:
        self._position = 0  # of the next element in the stream
        self._starts: list[tuple[Any, Any]] = []  # numbers of rows, and where each begins in the stream
        for entry in self.journal.entries:
            if entry.get("split") == self.split:
                self.shards.append(from_plain(DatasetShard, entry["shard"]))
                self.next_row, self._position = entry["row"], entry["position"]
        self._samples = sum(shard.rows for shard in self.shards)
        stride = self.options.tokens or 1
        self._skipped = self._samples * stride - self._position  # elements that are in shards already
        self.schema = self.input_schema
        if self.options.tokenizer is not None and self.options.tokens is not None:
            self._values = np.zeros(0, dtype=self.options.tokenizer.dtype)
            kind = pa.from_numpy_dtype(self._values.dtype)
            self.schema = pa.schema([pa.field("tokens", pa.list_(kind, self.options.tokens + 1))])
        self._writer = ShardWriter(self.schema, self._keep, shard_bytes=self.options.shard_bytes)

    def feed(self, batch: pa.RecordBatch, numbers: "np.ndarray[Any, Any]", chosen: "np.ndarray[Any, Any]") -> None:
        """Take the chosen rows of a batch, `numbers` of the input, but for those that are in finished shards."""
        chosen = chosen & (numbers >= self.next_row)
        if not chosen.any():
            return
        rows = batch if chosen.all() else batch.filter(pa.array(chosen))
        numbers = numbers[chosen]
        tokenizer, tokens = self.options.tokenizer, self.options.tokens
        if tokenizer is None or tokens is None:
            self._place(numbers, np.ones(len(numbers), dtype=np.int64))
            self._writer.write(rows)
            return
        values, lengths = tokenizer.encode(rows.column(0).to_pylist())
        self._place(numbers, lengths)
        skipped = min(self._skipped, len(values))
        self._skipped -= skipped
        self._values = np.concatenate([self._values, values[skipped:]])
        count = (len(self._values) - 1) // tokens
        if count > 0:
            windows = np.lib.stride_tricks.sliding_window_view(self._values, tokens + 1)[: count * tokens : tokens]
            self._values = self._values[count * tokens :].copy()
            flat = pa.array(windows.ravel())
            column = pa.FixedSizeListArray.from_arrays(flat, tokens + 1)
            self._writer.write(pa.RecordBatch.from_arrays([column], schema=self.schema))

    def close(self) -> None:
        """Finish the last shard; what is shorter than a sample is left out."""
        self._place(np.array([_END]), np.array([0]))
        self._writer.close()

    def _place(self, numbers: "np.ndarray[Any, Any]", lengths: "np.ndarray[Any, Any]") -> None:
        """Note where each row begins in the stream."""
        ends = self._position + np.cumsum(lengths)
        self._starts.append((numbers, ends - lengths))
        self._position = int(ends[-1])

    def _keep(self, data: bytes, rows: int) -> None:
        """Store a finished shard; in the journal stand the row that holds the next sample's first element, and where
        that row begins."""
        self._samples += rows
        next_element = self._samples * (self.options.tokens or 1)
        while len(self._starts) > 1 and self._starts[1][1][0] <= next_element:
            self._starts.pop(0)
        numbers, begins = self._starts[0]
        at = bisect_right(begins, next_element) - 1
        number = len(self.shards)
        key = put_blob(self.store, data)
        shard = DatasetShard(
            path=f"{self.split}-{number:06d}.arrow", sha256=key.rpartition("/")[2], size_bytes=len(data), rows=rows,
            split=self.split,
        )  # fmt: skip
        self.journal.add(
            {"split": self.split, "shard": to_plain(shard), "row": int(numbers[at]), "position": int(begins[at])}
        )
        self.shards.append(shard)
