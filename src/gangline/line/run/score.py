"""`gangline score`: ranks of a verified version answer a data set; each shard once, the document last.

An output is named by what it depends on: input shard, weights, code, handler, outputs, rows of a forward pass. A signed
pointer to it is put if absent, so a call that was killed anywhere is repeated, redoes only what is missing, and gives
the same bytes. Who may write the store but has no key of the site cannot make an output.
"""

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gangline.data.added import check_apart
from gangline.data.versions import Trusted
from gangline.errors import GanglineError, IntegrityError, TrainingError
from gangline.signing.keys import SigningKey
from gangline.spec.codec import Document, digest
from gangline.spec.dataset import Dataset, DatasetOrigin, DatasetShard
from gangline.spec.gang.driver_orders import ScoreOrder
from gangline.storage.objects.blobs import PREFIX, put_blob
from gangline.storage.objects.protocol import ObjectStore, get_bounded, list_all

SCORES = "scores/"
"""First segment of the keys of pointers."""
_PURPOSE = b"gangline score 1\n"
_MOST_BYTES, _MOST_OUTPUT_BYTES = 64 << 10, 4 << 30


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
    """Signature over this document with an empty signature."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Scoring:
    """What is scored by what."""

    dataset: Dataset
    model: str
    """`NAME VERSION`, for the origin."""
    prefix: str
    """Prefix of the gang, below which its outputs lie."""
    identity: tuple[str, ...]
    """Digests and options that the bytes of an output depend on, except for its shard."""

    def id_of(self, shard: DatasetShard) -> str:
        """Name of the output of a shard."""
        return digest([shard.sha256, *self.identity])


@dataclass(frozen=True, kw_only=True)
class ScorePlace:
    """Where outputs are kept, and whose key signs for them."""

    store: ObjectStore
    key: SigningKey
    trusted: Trusted


Notify = Callable[[str], object]
RunRanks = Callable[[Sequence[tuple[str, str]], Notify], object]
"""Has (digest, name of its output) of shards scored, and tells the names that are done."""


def score(
    scoring: Scoring, place: ScorePlace, name: str, *, run: RunRanks, notify: Callable[[int, int], object]
) -> Dataset:
    """The document of the outputs, whose shards are all stored; the caller signs and writes it.

    Args:
        scoring: What is scored.
        place: Where.
        name: Of the data set that is made.
        run: Starts ranks, and follows them to their end.
        notify: Called with the shards that are done, and all.

    Raises:
        GanglineError: Of the rank that failed first; what was scored stays.
    """
    shards = {scoring.id_of(dataset_shard): dataset_shard for dataset_shard in scoring.dataset.shards}
    done = {each: shard for each in shards if (shard := _find(place, each)) is not None}
    made = set(done)

    def tell(output: str) -> None:
        made.add(output)
        notify(len(made & shards.keys()), len(shards))

    notify(len(done), len(shards))
    missing = [each for each in shards if each not in done]
    if missing:
        run([(shards[each].sha256, each) for each in missing], tell)
        done |= {each: _taken(place, scoring.prefix, each, shards[each]) for each in missing}
    for entry in list_all(place.store, f"{scoring.prefix}/"):  # what was taken, by this call or one that was killed
        place.store.delete(entry.key)
    return _document(
        scoring, name, [(dataset_shard, done[scoring.id_of(dataset_shard)]) for dataset_shard in scoring.dataset.shards]
    )


def _taken(place: ScorePlace, prefix: str, name: str, shard: DatasetShard) -> ScoredShard:
    """Check an output that a rank wrote, keep it as a blob, and point at it."""
    blob = get_bounded(place.store, key := ScoreOrder.output_key(prefix, name), most_bytes=_MOST_OUTPUT_BYTES)
    if blob is None:
        if (scored := _find(place, name)) is None:  # else another driver was faster
            raise TrainingError(f"outputs of {shard.path}: its rank ended well, and left none at {key}")
        return scored
    try:
        columns, rows = _checked(blob.data, f"outputs of {shard.path}")
        if rows != shard.rows:
            raise TrainingError(f"outputs of {shard.path}: wanted {shard.rows} rows, found {rows}")
    except GanglineError:
        place.store.delete(key)  # else ranks would not make it again
        raise
    draft = ScoredShard(
        id=name, sha256=put_blob(place.store, blob.data).removeprefix(PREFIX), size_bytes=len(blob.data), rows=rows,
        columns=columns, key_id=place.key.key_id,
    )  # fmt: skip
    made = replace(draft, signature=place.key.sign(_PURPOSE + draft.to_json()))
    if place.store.put_if_absent(_key(name), made.to_json()) is None:
        return _find(place, name) or made
    return made


def _checked(data: bytes, what: str) -> tuple[tuple[tuple[str, str], ...], int]:
    with tempfile.TemporaryDirectory(prefix="gangline-score-") as folder:
        path = Path(folder, "outputs.arrow")
        path.write_bytes(data)
        return check_apart(path, what)


def _find(place: ScorePlace, name: str) -> ScoredShard | None:
    """The output of that name, if a trusted key signed the pointer; None: it has to be scored."""
    blob = get_bounded(place.store, _key(name), most_bytes=_MOST_BYTES)
    if blob is None:
        return None
    try:
        shard = ScoredShard.from_json(blob.data)
        place.trusted[shard.key_id].verify(shard.signature, _PURPOSE + replace(shard, signature="").to_json())
    except (IntegrityError, KeyError):
        return None
    return shard if shard.id == name else None


def _document(scoring: Scoring, name: str, done: Sequence[tuple[DatasetShard, ScoredShard]]) -> Dataset:
    columns = {shard.columns for _, shard in done}
    shards = [
        DatasetShard(
            path=shard.path, sha256=scored.sha256, size_bytes=scored.size_bytes, rows=scored.rows, split=shard.split
        )
        for shard, scored in done
    ]  # fmt: skip
    if len(columns) != 1:
        raise TrainingError(f"wanted the same outputs for every shard, found {len(columns)} kinds: {sorted(columns)}")
    data = f"{scoring.dataset.name}@{scoring.dataset.version}"
    return Dataset(
        name=name, num_samples=sum(shard.rows for shard in shards), schema=columns.pop(), shards=tuple(shards),
        origin=DatasetOrigin(model=scoring.model, dataset=data),
    )  # fmt: skip


def _key(name: str) -> str:
    return f"{SCORES}{name}.json"
