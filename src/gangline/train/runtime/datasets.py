"""Data sets of a plan on a rank: rows by number, shards opened when they are needed, the next window fetched ahead.

The main process of a rank fetches the shards of samples before workers are given them, so that workers only open files,
and the watchdog knows how long a fetch may take. The first rank of a node also fetches, in a thread, what the ranks of
the node read next.
"""

import os
import threading
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from gangline.errors import GanglineError
from gangline.spec.data_source import DataSource
from gangline.spec.dataset import Dataset, DatasetShard, Split
from gangline.train import heartbeat

if TYPE_CHECKING:
    from gangline.data.arrow_rows import ArrowRows
    from gangline.data.order import DatasetOrder

SHARD_SECONDS = 900.0
"""Silence announced while one shard is fetched."""
MOST_OPEN = 256
"""Shards that a process has open at most: each takes two of its file descriptors."""


class ShardFiles(Protocol):
    """Shards on the disk of this node, for one thread: `data.cache.ShardCache`."""

    def file(self, shard: DatasetShard) -> Path:
        """Path of the whole, verified shard; it stays until a `hold` that does not name it."""
        ...

    def hold(self, shards: Collection[DatasetShard]) -> None:
        """Let go of all other shards."""
        ...


@dataclass(frozen=True, slots=True)
class ShardSpan:
    """Rows of one shard that belong to a split."""

    number: int
    """Place of the data set among those of the plan."""
    shard: DatasetShard
    first: int
    rows: int


def split_pieces(number: int, dataset: Dataset, split: Split, *, holdout: float) -> list[ShardSpan]:
    """Rows of a version that belong to `split`; one without held-out shards holds back the `holdout` tail of its rows.

    Args:
        number: Of the data set among those of the plan.
        dataset: The version.
        split: Part that is asked for.
        holdout: Share of the rows, in (0, 0.5].
    """
    if any(dataset_shard.split == "holdout" for dataset_shard in dataset.shards):
        return [
            ShardSpan(number, dataset_shard, 0, dataset_shard.rows)
            for dataset_shard in dataset.shards
            if dataset_shard.split == split
        ]
    left = dataset.num_samples - min(max(round(dataset.num_samples * holdout), 1), dataset.num_samples - 1)
    pieces = []
    for shard in dataset.shards:
        trained = min(shard.rows, left)
        left -= trained
        first, rows = (0, trained) if split == "train" else (trained, shard.rows - trained)
        pieces += [ShardSpan(number, shard, first, rows)] if rows else []
    return pieces


class OpenShards:
    """Shards that this process has open, those that were used last."""

    def __init__(self, files: ShardFiles, *, most: int) -> None:
        self._files, self._most = files, min(most, MOST_OPEN)
        self._open: OrderedDict[str, tuple[DatasetShard, Path]] = OrderedDict()
        self._rows: dict[str, ArrowRows] = {}

    def fetch(self, shard: DatasetShard) -> Path:
        """File of the shard on this node; may take long."""
        if shard.sha256 in self._open:
            self._open.move_to_end(shard.sha256)
            return self._open[shard.sha256][1]
        heartbeat.expect(SHARD_SECONDS)
        path = self._files.file(shard)
        self._open[shard.sha256] = (shard, path)
        if len(self._open) > self._most:
            for digest in [each for each, _ in zip(self._open, range(self._most // 4 + 1), strict=False)]:
                del self._open[digest]
                if digest in self._rows:
                    self._rows.pop(digest).close()
            self._files.hold([dataset_shard for dataset_shard, _ in self._open.values()])
        return path

    def rows(self, shard: DatasetShard) -> "ArrowRows":
        """Rows of the shard, by number; unsigned integers are read as int64."""
        rows = self._rows.get(shard.sha256)
        if rows is None:
            path = self.fetch(shard)
            from gangline.data.arrow_rows import ArrowRows  # imports pyarrow, which ranks without data sets lack

            rows = self._rows[shard.sha256] = ArrowRows(path, signed=True)
        else:
            self._open.move_to_end(shard.sha256)
        return rows


class DatasetRows:
    """Rows of a split of all data sets of a plan, set by set: what a task gets as `options["dataset"]`."""

    def __init__(self, pieces: Sequence[ShardSpan], shards: OpenShards) -> None:
        self.pieces = tuple(pieces)
        self.order_of: Callable[..., FetchedOrder | None] = lambda _, **__: None
        """Order in which data made of these rows are trained on; None: they have none of their own."""
        self._shards = shards
        self._starts = [0, *accumulate(piece.rows for piece in pieces)]

    def __len__(self) -> int:
        return self._starts[-1]

    def __getitem__(self, index: int) -> dict[str, Any]:
        """Values by column: numpy arrays, bytes or text; unsigned integers as int64, which torch can look up."""
        piece, row = self.locate(index)
        return self._shards.rows(piece.shard)[row]

    def batch(self, indices: Sequence[int]) -> dict[str, Any]:
        """Values of samples by column, each number copied once: arrays with the samples first, lists of bytes or text.

        Raises:
            ValueError: Samples differ in their columns, or in the length of a list.
        """
        from gangline.data.arrow_rows import stacked  # imports pyarrow, as above

        places = map(self.locate, indices)
        return stacked([self._shards.rows(piece.shard).locate(row) for piece, row in places])

    def locate(self, index: int) -> tuple[ShardSpan, int]:
        """ShardSpan of the sample, and its row in the shard."""
        if not 0 <= index < self._starts[-1]:
            raise IndexError(f"wanted a sample below {len(self)}, found {index}")
        place = bisect_right(self._starts, index) - 1
        piece = self.pieces[place]
        return piece, piece.first + index - self._starts[place]


class FetchedOrder:
    """Order of the train rows that has the shard of each sample fetched before the sample is read."""

    def __init__(
        self, order: "DatasetOrder", rows: DatasetRows, shards: OpenShards, *, global_batch: int,
        places: Iterable[int], ahead: "WindowFetcher | None",
    ) -> None:  # fmt: skip
        """Args:
        places: Of a step, those that ranks of this node take.
        ahead: Fetches what comes next; None: another rank of this node does.
        """
        self._order, self._rows, self._shards, self._ahead = order, rows, shards, ahead
        self._global_batch, self._places, self._step = global_batch, tuple(places), -1
        own: dict[int, list[DatasetShard]] = {}
        for piece in rows.pieces:
            own.setdefault(piece.number, []).append(piece.shard)
        self._by_set = own

    def samples(self, positions: Sequence[int]) -> list[int]:
        """Indices of the samples at `positions` of one step, whose shards are on this node then."""
        if self._ahead is not None and positions[0] // self._global_batch != self._step:
            self._step = positions[0] // self._global_batch
            now, after = self._order.windows(positions[0], self._places)
            self._ahead.want([self._by_set[number][shard] for number, shard in (*now, *after)][:MOST_OPEN])
        places = self._order.places(positions)
        for number, shard in dict.fromkeys(zip(places.sets.tolist(), places.shards.tolist(), strict=True)):
            self._shards.fetch(self._by_set[number][shard])
        return self._order.numbers_of(places)


class WindowFetcher:
    """A thread that fetches shards before they are read."""

    def __init__(self, open_files: Callable[[], ShardFiles]) -> None:
        self._open_files = open_files
        self._wanted: list[DatasetShard] = []
        self._has_news = False
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def want(self, shards: list[DatasetShard]) -> None:
        """Fetch and hold these from now on, in their order, and no others."""
        with self._changed:
            if shards == self._wanted:
                return
            self._wanted, self._has_news = shards, True
            self._changed.notify()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="shards", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        files = self._open_files()
        while True:
            with self._changed:
                while not self._has_news:
                    self._changed.wait()
                self._has_news, wanted = False, self._wanted
            files.hold(wanted)
            with suppress(GanglineError, OSError):  # the rank that reads the shard fails by the same error, and says so
                for shard in wanted:
                    if not self._has_news:
                        files.file(shard)


class RankDatasets:
    """Data sets of a plan on one rank."""

    def __init__(
        self, source: DataSource, documents: Sequence[Dataset], open_files: Callable[[], ShardFiles], *,
        global_batch: int, fetches_ahead: bool = False,
    ) -> None:  # fmt: skip
        """Args:
        documents: Of `source.sets`, in their order.
        open_files: Opens the shards on this node, once for each thread.
        global_batch: Samples of a step.
        fetches_ahead: This rank fetches what its node reads next.
        """
        self._source, self._documents, self._open_files = source, documents, open_files
        self._global_batch = global_batch
        self._ahead = WindowFetcher(open_files) if fetches_ahead else None
        most = MOST_OPEN if source.order == "full" else 2 * source.window * len(documents) * source.parts
        self._shards = OpenShards(open_files(), most=max(most, 16))
        self.train, self.holdout = self._rows("train"), self._rows("holdout")
        self.train.order_of = self.order_of

    def put_shards(self, folder: Path) -> list[str]:
        """Put all shards of these data sets below `folder`, as the function of that name does."""
        return put_shards(self._documents, self._open_files(), folder)

    def split(self, name: str) -> DatasetRows:
        """Rows of `train` or `holdout`."""
        return self.train if name == "train" else self.holdout

    def order_of(self, data: Any, *, seed: int, places: Iterable[int] = (0,)) -> FetchedOrder | None:
        """Order of `data`, whose sample `i` is made of row `i`; None: it has another length, or an order of its own.

        `places`: Of a step, those that ranks of this node take.
        """
        if hasattr(data, "epoch_order") or len(data) != len(self.train):
            return None
        from gangline.data.order import DatasetOrder, SetRows  # imports numpy, which ranks without data sets may lack

        sets = [
            SetRows(
                name=use.name, weight=use.weight,
                rows=tuple(piece.rows for piece in self.train.pieces if piece.number == number),
            )
            for number, use in enumerate(self._source.sets)
        ]  # fmt: skip
        source = self._source
        order = DatasetOrder(
            sets, seed=seed, order=source.order, window=source.window, parts=source.parts,
            global_batch=self._global_batch,
        )  # fmt: skip
        return FetchedOrder(
            order, self.train, self._shards, global_batch=self._global_batch, places=places,
            ahead=self._ahead,
        )  # fmt: skip

    def _rows(self, split: Split) -> DatasetRows:
        pieces = [
            piece
            for number, document in enumerate(self._documents)
            for piece in split_pieces(number, document, split, holdout=self._source.holdout)
        ]
        return DatasetRows(pieces, self._shards)


def put_shards(documents: Sequence[Dataset], files: ShardFiles, folder: Path) -> list[str]:
    """Put all shards below `folder` as `NAME/SPLIT/SHARD`, for programs that read files; their paths, sorted."""
    paths = []
    for document in documents:
        for shard in document.shards:
            place = folder / document.name / shard.split / shard.path
            if not (place.exists() and place.stat().st_size == shard.size_bytes):
                place.parent.mkdir(parents=True, exist_ok=True)
                heartbeat.expect(SHARD_SECONDS)
                _put(files.file(shard), place)
                files.hold(())
            paths.append(str(place))
    return sorted(paths)


def _put(path: Path, place: Path) -> None:
    """Link the file where the two places share a disk, else copy it; it appears whole."""
    part = place.with_name(f"{place.name}.{os.getpid()}.part")
    try:
        part.hardlink_to(path)
    except OSError:
        part.write_bytes(path.read_bytes())
    part.replace(place)
