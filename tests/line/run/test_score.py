"""IN4: a data set is scored once, by any number of processes, with the same bytes wherever a call was killed."""

import json
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from tests.infer.model_folder import code, write_model
from tests.registry.passed_run import git

from gangline.data.arrow_rows import ArrowRows
from gangline.data.versions import resolve_dataset, write_dataset
from gangline.errors import ConfigError, IntegrityError, StorageError
from gangline.line.gangs.score_workers import ScoreJob, _take
from gangline.line.run.score import SCORES, ScorePlace, Scoring, score
from gangline.signing.keys import signing_key
from gangline.signing.record_seal import Sealer
from gangline.spec.config.site import Site
from gangline.spec.dataset import Dataset, DatasetShard
from gangline.storage.folder.store import FolderStore
from gangline.storage.objects.blobs import PREFIX, put_blob


def shard_bytes(first, rows=3):
    values = np.arange(first, first + 4 * rows, dtype=np.float32)
    table = pa.RecordBatch.from_arrays([pa.FixedSizeListArray.from_arrays(pa.array(values), 4)], ["x"])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_batch(table)
    return sink.getvalue().to_pybytes()


@pytest.fixture
def place(tmp_path):
    repo = tmp_path / "repo"
    repo.mkdir()
    git(repo, "init", "--quiet")
    environ = {"XDG_CONFIG_HOME": str(tmp_path / "config"), "HOME": str(tmp_path)}
    return ScorePlace(
        store=FolderStore(tmp_path / "store"), repo=repo, site=Site(), environ=environ,
        key=signing_key(Site(), environ), trusted=Sealer.of(Site(), environ).trusted, source_of=lambda name: None,
    )  # fmt: skip


@pytest.fixture
def scoring(tmp_path, place):
    shards = []
    for number in range(3):
        data = shard_bytes(100 * number)
        digest = put_blob(place.store, data).removeprefix(PREFIX)
        split = "holdout" if number == 2 else "train"
        shards.append(
            DatasetShard(path=f"{number}.arrow", sha256=digest, size_bytes=len(data), rows=3, split=split)
        )  # fmt: skip
    dataset = Dataset(name="tickets", num_samples=9, schema=(("x", "list"),), shards=tuple(shards))
    job = ScoreJob(
        folder=write_model(tmp_path / "model"), code=code(), python=None, columns=("x",), batch=2, env={},
    )  # fmt: skip
    return Scoring(dataset=dataset, model="line 1", identity=("weights", "2"), job=job)


def quiet(done, total):
    """Say nothing."""


class Killed(Exception):
    """The driver ended here."""


class DyingStore:
    """A store whose process ends at the n-th write, before or after it."""

    def __init__(self, store, at, *, after):
        self._store, self._left, self._after = store, at, after

    def __getattr__(self, name):
        found = getattr(self._store, name)
        if not name.startswith(("put", "compare")):
            return found

        def write(*given, **named):
            self._left -= 1
            if self._left < 0 or (self._left == 0 and not self._after):
                raise Killed
            answer = found(*given, **named)
            if self._left == 0:
                raise Killed
            return answer

        return write


def test_outputs_name_model_and_data_and_keep_rows_and_splits(place, scoring):
    made = score(scoring, place, "scored", processes=2, notify=quiet)
    assert (made.origin.model, made.origin.dataset) == ("line 1", f"tickets@{scoring.dataset.version}")
    assert [(each.path, each.split, each.rows) for each in made.shards] == [
        ("0.arrow", "train", 3), ("1.arrow", "train", 3), ("2.arrow", "holdout", 3),
    ]  # fmt: skip
    path = place.repo.parent / "store" / made.shards[1].key
    with ArrowRows(path) as rows:
        assert [(int(rows[n]["row"]), rows[n]["output"].tolist()) for n in range(3)] == [
            (n, [float(4 * (100 + 4 * n) + 6)]) for n in range(3)
        ]
    write_dataset(place.store, made, place.key, place.trusted)
    assert resolve_dataset(place.store, f"scored@{made.version}", place.trusted) == made


@pytest.mark.long
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("at", range(1, 7))
def test_killed_at_every_write_the_same_bytes(place, scoring, at, after):
    other = FolderStore(place.repo.parent / "other")
    for each in scoring.dataset.shards:
        put_blob(other, place.store.get(each.key).data)
    wanted = score(scoring, replace(place, store=other), "scored", processes=1, notify=quiet)
    with pytest.raises(Killed):
        score(scoring, replace(place, store=DyingStore(place.store, at, after=after)), "scored", processes=1,
              notify=quiet)  # fmt: skip
    again = []
    made = score(scoring, place, "scored", processes=2, notify=lambda done, total: again.append(done))
    assert made.to_json() == wanted.to_json()
    assert again[0] == (at - 1 + after) // 2  # of each shard the blob is written, then what points at it


def test_what_no_key_of_the_site_signed_is_scored_again(place, scoring):
    made = score(scoring, place, "scored", processes=1, notify=quiet)
    key = f"{SCORES}{scoring.id_of(scoring.dataset.shards[0])}.json"
    plain = json.loads(place.store.get(key).data)
    foreign = put_blob(place.store, shard_bytes(7)).removeprefix(PREFIX)
    place.store.put(key, json.dumps({**plain, "sha256": foreign}).encode())
    done = []
    assert score(scoring, place, "scored", processes=1, notify=lambda n, _: done.append(n)).to_json() == made.to_json()
    assert done == [2, 3]


def test_a_shard_that_changed_is_not_scored(place, scoring):
    shard = scoring.dataset.shards[1]
    place.store.put(shard.key, shard_bytes(5)[: shard.size_bytes])
    with pytest.raises(IntegrityError, match="wanted a shard of digest"):
        score(scoring, place, "scored", processes=1, notify=quiet)
    place.store.delete(shard.key)
    with pytest.raises(StorageError):
        score(scoring, place, "scored", processes=1, notify=quiet)


def test_a_data_set_without_the_inputs_ends_with_its_code(place, scoring):
    other = replace(scoring, job=replace(scoring.job, columns=("text",)))
    with pytest.raises(ConfigError, match="the model takes x, the data set has text"):
        score(other, place, "scored", processes=1, notify=quiet)
    assert list(place.store.list(SCORES)) == []


def test_a_link_in_the_place_of_outputs_is_not_followed(tmp_path):
    (tmp_path / "secret").write_text("key")
    (tmp_path / "outputs.arrow").symlink_to(tmp_path / "secret")
    with pytest.raises(IntegrityError, match="plain file"):
        _take(tmp_path / "outputs.arrow", tmp_path / "taken")
    assert not (tmp_path / "taken").exists()


def test_another_model_or_batch_is_another_output(place, scoring):
    shard = scoring.dataset.shards[0]
    names = {replace(scoring, identity=each).id_of(shard) for each in (("a", "2"), ("b", "2"), ("a", "3"))}
    assert len(names) == 3
