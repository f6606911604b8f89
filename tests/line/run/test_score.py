"""IN4: a data set is scored once, by any number of ranks, with the same bytes wherever a call was killed."""

import json
import sys
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
from tests.infer.model_folder import code, write_model
from tests.registry.passed_run import git

from gangline.data.arrow_rows import ArrowRows
from gangline.data.versions import dataset_use, resolve_dataset, write_dataset
from gangline.errors import ConfigError, IntegrityError, StorageError, TrainingError
from gangline.line.run.score import SCORES, ScorePlace, Scoring, score
from gangline.signing.keys import signing_key
from gangline.signing.record_seal import Sealer
from gangline.spec.config.site import Site
from gangline.spec.dataset import Dataset, DatasetShard
from gangline.spec.gang.driver_orders import MODEL_FOLDER, ORDER_FILE, ScoreOrder, ShardAccess
from gangline.storage.folder.store import FolderStore
from gangline.storage.objects.blobs import PREFIX, put_blob
from gangline.storage.objects.code_layer import unpack
from gangline.train.roles import score as role
from gangline.train.roles.score import score_shard

GANG = "runs/p/c/r/gang"


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
    key, trusted = signing_key(Site(), environ), Sealer.of(Site(), environ).trusted
    return ScorePlace(store=FolderStore(tmp_path / "store"), key=key, trusted=trusted)


@pytest.fixture
def ranks(tmp_path, monkeypatch, scoring):
    """Runs the role of each rank in this process, on the files that its keeper would have put there."""
    unpack(code(), tmp_path / "code")
    monkeypatch.syspath_prepend(str(tmp_path / "code"))
    monkeypatch.setattr(role, "fetch_data", lambda context: None)
    write_model(tmp_path / "data" / MODEL_FOLDER)

    def of(place, *, world=2, columns=("x",), stopped=()):
        def run(shards, tell):
            put_blob(place.store, scoring.dataset.to_json())
            order = ScoreOrder(columns=columns, batch=2, shards=tuple(shards))
            (tmp_path / "data" / ORDER_FILE).write_bytes(order.to_json())
            use = dataset_use(scoring.dataset)
            plan = SimpleNamespace(run_prefix=GANG, world_size=world, data=SimpleNamespace(sets=(use,)))
            emit = lambda event, **fields: event == "scored" and tell(fields["shard"])  # noqa: E731
            for rank in range(world):
                monkeypatch.delitem(sys.modules, "line_task", raising=False)
                context = SimpleNamespace(
                    plan=plan, rank=rank, store=place.store, open_store=None, shards=ShardAccess(), secrets=None,
                    data_folder=tmp_path / "data", scratch=tmp_path, events=SimpleNamespace(emit=emit),
                    stop_asked=rank in stopped,
                )  # fmt: skip
                assert role.run(context) == (143 if rank in stopped else 0)

        return run

    return of


@pytest.fixture
def scoring(place):
    shards = []
    for number in range(3):
        data = shard_bytes(100 * number)
        digest = put_blob(place.store, data).removeprefix(PREFIX)
        split = "holdout" if number == 2 else "train"
        shards.append(
            DatasetShard(path=f"{number}.arrow", sha256=digest, size_bytes=len(data), rows=3, split=split)
        )  # fmt: skip
    dataset = Dataset(name="tickets", num_samples=9, schema=(("x", "list"),), shards=tuple(shards))
    return Scoring(dataset=dataset, model="line 1", identity=("weights", "2"), prefix=GANG)


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


def test_outputs_name_model_and_data_and_keep_rows_and_splits(tmp_path, place, scoring, ranks):
    made = score(scoring, place, "scored", run=ranks(place), notify=quiet)
    assert (made.origin.model, made.origin.dataset) == ("line 1", f"tickets@{scoring.dataset.version}")
    assert [(each.path, each.split, each.rows) for each in made.shards] == [
        ("0.arrow", "train", 3), ("1.arrow", "train", 3), ("2.arrow", "holdout", 3),
    ]  # fmt: skip
    path = tmp_path / "store" / made.shards[1].key
    with ArrowRows(path) as rows:
        assert [(int(rows[n]["row"]), rows[n]["output"].tolist()) for n in range(3)] == [
            (n, [float(4 * (100 + 4 * n) + 6)]) for n in range(3)
        ]
    write_dataset(place.store, made, place.key, place.trusted)
    assert resolve_dataset(place.store, f"scored@{made.version}", place.trusted) == made


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("at", range(1, 10))
def test_killed_at_every_write_the_same_bytes(tmp_path, place, scoring, ranks, at, after):
    other = replace(place, store=FolderStore(tmp_path / "other"))
    for each in scoring.dataset.shards:
        put_blob(other.store, place.store.get(each.key).data)
    wanted = score(scoring, other, "scored", run=ranks(other, world=1), notify=quiet)
    put_blob(place.store, scoring.dataset.to_json())
    dying = replace(place, store=DyingStore(place.store, at, after=after))
    with pytest.raises(Killed):
        score(scoring, dying, "scored", run=ranks(dying), notify=quiet)
    again = []
    made = score(scoring, place, "scored", run=ranks(place), notify=lambda done, total: again.append(done))
    assert made.to_json() == wanted.to_json()
    assert again[0] == max(0, (at - 3 - 1 + after) // 2)  # three by ranks; then of each a blob, and what points at it
    assert again[-1] == 3
    assert list(place.store.list(GANG)) == []


def test_what_no_key_of_the_site_signed_is_scored_again(place, scoring, ranks):
    made = score(scoring, place, "scored", run=ranks(place), notify=quiet)
    key = f"{SCORES}{scoring.id_of(scoring.dataset.shards[0])}.json"
    plain = json.loads(place.store.get(key).data)
    foreign = put_blob(place.store, shard_bytes(7)).removeprefix(PREFIX)
    place.store.put(key, json.dumps({**plain, "sha256": foreign}).encode())
    done = []
    again = score(scoring, place, "scored", run=ranks(place), notify=lambda n, _: done.append(n))
    assert again.to_json() == made.to_json()
    assert done == [2, 3]


def test_outputs_that_are_there_are_not_made_again(place, scoring, ranks, monkeypatch):
    scored = []
    monkeypatch.setattr(
        role, "score_shard", lambda *given, **named: scored.append(given[1]) or score_shard(*given, **named)
    )
    with pytest.raises(TrainingError, match="left none"):
        score(scoring, place, "scored", run=ranks(place, stopped=(1,)), notify=quiet)
    place.store.delete(f"{SCORES}{scoring.id_of(scoring.dataset.shards[0])}.json")
    score(scoring, place, "scored", run=ranks(place), notify=quiet)
    assert len(scored) == len(set(scored)) == 3


@pytest.mark.parametrize(
    ("left", "says"), [(shard_bytes(0, rows=2), "wanted 3 rows, found 2"), (b"no file", "outputs of 0")]
)
def test_what_a_rank_left_is_checked_before_it_is_signed(place, scoring, ranks, left, says):
    name = scoring.id_of(scoring.dataset.shards[0])
    place.store.put(ScoreOrder.output_key(GANG, name), left)  # it is not made again
    with pytest.raises((TrainingError, IntegrityError, ConfigError), match=says):
        score(scoring, place, "scored", run=ranks(place), notify=quiet)
    assert place.store.get(f"{SCORES}{name}.json") is None
    assert score(scoring, place, "scored", run=ranks(place), notify=quiet).num_samples == 9


def test_a_rank_that_is_asked_to_stop_leaves_the_rest_to_the_next_call(place, scoring, ranks):
    with pytest.raises(TrainingError, match="left none"):
        score(scoring, place, "scored", run=ranks(place, stopped=(0,)), notify=quiet)
    assert score(scoring, place, "scored", run=ranks(place), notify=quiet).num_samples == 9


def test_a_shard_that_changed_is_not_scored(place, scoring, ranks):
    shard = scoring.dataset.shards[1]
    place.store.put(shard.key, shard_bytes(5)[: shard.size_bytes])
    with pytest.raises(IntegrityError, match="digest"):
        score(scoring, place, "scored", run=ranks(place), notify=quiet)
    place.store.delete(shard.key)
    with pytest.raises(StorageError):
        score(scoring, place, "scored", run=ranks(place), notify=quiet)


def test_a_data_set_without_the_inputs_ends_with_its_code(place, scoring, ranks):
    with pytest.raises(ConfigError, match="the model takes x, the data set has text"):
        score(scoring, place, "scored", run=ranks(place, columns=("text",)), notify=quiet)
    assert list(place.store.list(SCORES)) == []


def test_another_model_or_batch_is_another_output(place, scoring):
    shard = scoring.dataset.shards[0]
    names = {replace(scoring, identity=each).id_of(shard) for each in (("a", "2"), ("b", "2"), ("a", "3"))}
    assert len(names) == 3
