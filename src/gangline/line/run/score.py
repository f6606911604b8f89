"""`gangline score`: a verified version answers a data set; each shard once, the document last.

An output is named by what it depends on: input shard, weights, code, handler, outputs, rows of a forward pass. A signed
pointer to it is put if absent, so a call that was killed anywhere is repeated, redoes only what is missing, and gives
the same bytes. Who may write the store but has no key of the site cannot make an output.
"""

import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue

from gangline.data.added import check_apart
from gangline.data.shard_reads import SourceOf, shard_blocks
from gangline.data.versions import Trusted
from gangline.errors import IntegrityError, TrainingError
from gangline.line.gangs.score_workers import ScoreJob, ScoreWorker, started_worker
from gangline.signing.keys import SigningKey
from gangline.spec.codec import Document, digest
from gangline.spec.config.site import Site
from gangline.spec.dataset import Dataset, DatasetOrigin, DatasetShard
from gangline.storage.objects.blobs import PREFIX, put_blob
from gangline.storage.objects.protocol import ObjectStore, get_bounded

SCORES = "scores/"
"""First segment of the keys of pointers."""
_PURPOSE = b"gangline score 1\n"
_MOST_BYTES = 64 << 10


@dataclass(frozen=True, kw_only=True, slots=True)
class ScoredShard(Document):
    """`scores/<id>.json`: the blob with the outputs for one shard."""

    id: str
    sha256: str
    size_bytes: int
    rows: int
    columns: tuple[tuple[str, str], ...]
    key_id: str
    signature: str = ""
    """Over this document with an empty signature."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Scoring:
    """What is scored by what."""

    dataset: Dataset
    model: str
    """`NAME VERSION`, for the origin."""
    identity: tuple[str, ...]
    """Digests and options that the bytes of an output depend on, except for its shard."""
    job: ScoreJob

    def id_of(self, shard: DatasetShard) -> str:
        """Name of the output of a shard."""
        return digest([shard.sha256, *self.identity])


@dataclass(frozen=True, kw_only=True)
class ScorePlace:
    """Where it happens."""

    store: ObjectStore
    repo: Path
    site: Site
    environ: Mapping[str, str]
    key: SigningKey
    trusted: Trusted
    source_of: SourceOf


def score(
    scoring: Scoring, place: ScorePlace, name: str, *, processes: int, notify: Callable[[int, int], object]
) -> Dataset:
    """The document of the outputs, whose shards are all stored; the caller signs and writes it.

    Args:
        scoring: What is scored.
        place: Where.
        name: Of the data set that is made.
        processes: That score at once.
        notify: Called with the shards that are done, and all.

    Raises:
        GanglineError: Of the first process that failed; what was scored stays.
    """
    shards = scoring.dataset.shards
    done = {each.sha256: found for each in shards if (found := _find(place, scoring.id_of(each))) is not None}
    waiting: SimpleQueue[DatasetShard] = SimpleQueue()
    missing = {each.sha256: each for each in shards if each.sha256 not in done}
    for each in missing.values():
        waiting.put(each)
    notify(len(done), len(shards))
    failed = threading.Event()

    def work() -> None:
        try:
            with started_worker(scoring.job, place.repo, site=place.site, environ=place.environ) as worker:
                for shard in _until_empty(waiting, failed):
                    done[shard.sha256] = _score_one(scoring, place, worker, shard)
                    notify(len(done), len(shards))
        except BaseException:
            failed.set()
            raise

    with ExitStack() as stack:
        pool = stack.enter_context(ThreadPoolExecutor(max(1, min(processes, len(missing)))))
        started = [pool.submit(work) for _ in range(min(processes, len(missing)))]
    for worker in started:
        worker.result()
    return _document(scoring, name, done)


def _score_one(scoring: Scoring, place: ScorePlace, worker: ScoreWorker, shard: DatasetShard) -> ScoredShard:
    """Score a shard, check what the process wrote, store it, and point at it."""
    with worker.scored(partial(shard_blocks, place.store, shard, place.source_of), shard.sha256) as path:
        columns, rows = check_apart(path, f"outputs of {shard.path}")
        if rows != shard.rows:
            raise TrainingError(f"outputs of {shard.path}: wanted {shard.rows} rows, found {rows}")
        data = path.read_bytes()
    draft = ScoredShard(
        id=scoring.id_of(shard), sha256=put_blob(place.store, data).removeprefix(PREFIX), size_bytes=len(data),
        rows=rows, columns=columns, key_id=place.key.key_id,
    )  # fmt: skip
    made = replace(draft, signature=place.key.sign(_PURPOSE + draft.to_json()))
    if place.store.put_if_absent(_key(made.id), made.to_json()) is None:
        return _find(place, made.id) or made
    return made


def _find(place: ScorePlace, name: str) -> ScoredShard | None:
    """The output of that name, if a trusted key signed the pointer; None: it has to be scored."""
    blob = get_bounded(place.store, _key(name), most_bytes=_MOST_BYTES)
    if blob is None:
        return None
    try:
        found = ScoredShard.from_json(blob.data)
        place.trusted[found.key_id].verify(found.signature, _PURPOSE + replace(found, signature="").to_json())
    except (IntegrityError, KeyError):
        return None
    return found if found.id == name else None


def _document(scoring: Scoring, name: str, done: Mapping[str, ScoredShard]) -> Dataset:
    shards, columns = [], set[tuple[tuple[str, str], ...]]()
    for shard in scoring.dataset.shards:
        found = done[shard.sha256]
        columns.add(found.columns)
        shards.append(
            DatasetShard(
                path=shard.path, sha256=found.sha256, size_bytes=found.size_bytes, rows=found.rows, split=shard.split
            )
        )  # fmt: skip
    if len(columns) != 1:
        raise TrainingError(f"wanted the same outputs for every shard, found {len(columns)} kinds: {sorted(columns)}")
    data = f"{scoring.dataset.name}@{scoring.dataset.version}"
    return Dataset(
        name=name, num_samples=sum(each.rows for each in shards), schema=columns.pop(), shards=tuple(shards),
        origin=DatasetOrigin(model=scoring.model, dataset=data),
    )  # fmt: skip


def _until_empty(waiting: "SimpleQueue[DatasetShard]", failed: threading.Event) -> Iterable[DatasetShard]:
    while not failed.is_set():
        try:
            yield waiting.get_nowait()
        except Empty:
            return


def _key(name: str) -> str:
    return f"{SCORES}{name}.json"
