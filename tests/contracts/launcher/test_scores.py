"""IN4: a data set is scored by two ranks under every launcher, with the bytes of one rank here."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from tests.contracts.launcher.gangs import Stand, poll
from tests.contracts.launcher.stands import IMAGE, STORE, FakeStand
from tests.infer.model_folder import code, write_model
from tests.launch.slurm.cluster.stand import SlurmStand
from tests.report.records import passed

from gangline.errors import CapacityError, ConfigError
from gangline.launch.kubernetes.objects.labels import ROLE
from gangline.line.gangs import score_gang
from gangline.line.gangs.score_gang import GangPlace, ScoreJob, run_score_gang
from gangline.spec.config.site import LaunchTable, Site
from gangline.spec.dataset import Dataset, DatasetShard
from gangline.spec.gang.driver_orders import ScoreOrder
from gangline.spec.identity import score_id
from gangline.storage.objects.blobs import PREFIX, put_blob
from gangline.train.model.published import read_config

pytestmark = pytest.mark.timeout(240)
RANKS_AT = {"local": "local", "fake": "kubernetes", "slurm": "slurm"}


class AsPodsSeeIt:
    """The folder of a stand under the address that its pods are told."""

    def __init__(self, store, url):
        self._store, self.url = store, url

    def __getattr__(self, name):
        return getattr(self._store, name)


class Scene:
    """A model, a data set of four shards, and the launcher of a stand."""

    def __init__(self, stand, kind, root):
        self.stand, self.kind, self.shards, self.said = stand, kind, [], []
        for number in range(4):
            values = pa.FixedSizeListArray.from_arrays(pa.array(np.arange(40, dtype=np.float32) + number), 4)
            table = pa.RecordBatch.from_arrays([values], ["x"])
            with (sink := pa.BufferOutputStream()), pa.ipc.new_file(sink, table.schema) as writer:
                writer.write_batch(table)
            data = sink.getvalue().to_pybytes()
            sha256 = put_blob(stand.store, data).removeprefix(PREFIX)
            self.shards.append(DatasetShard(path=f"{number}.arrow", sha256=sha256, size_bytes=len(data), rows=10))
        self.dataset = Dataset(name="rows", num_samples=40, schema=(("x", "list"),), shards=tuple(self.shards))
        put_blob(stand.store, self.dataset.to_json())
        folder, record = write_model(root / "model"), passed()
        store = AsPodsSeeIt(stand.store, STORE) if kind == "fake" else stand.store
        site = Site(launch=LaunchTable(target=RANKS_AT[kind]))
        self.place = GangPlace(store=store, repo=root, site=site, environ={}, say=self.said.append)
        config = read_config(folder) | {"code": put_blob(stand.store, code())}
        order = ScoreOrder(columns=("x",), batch=4, shards=())
        record = replace(record, inputs=replace(record.inputs, image=IMAGE if kind == "fake" else None))
        self.job = ScoreJob(name="", record=record, folder=folder, config=config, order=order)

    def run(self, *, columns=("x",), **job):
        """Outputs by name of the shard."""
        name = score_id(self.job.record.run.project, self.job.record.commit, [str(job)])
        shards = tuple((each.sha256, each.path.removesuffix(".arrow")) for each in self.shards)
        asked = replace(self.job, name=name, order=replace(self.job.order, columns=columns, shards=shards), **job)
        told = []
        run_score_gang(asked, self.dataset, self.place, told.append)
        assert set(told) == {"0", "1", "2", "3"}
        return {each: self.stand.store.get(ScoreOrder.output_key(asked.prefix, each)).data for each in told}


@pytest.fixture(params=["local", "fake", pytest.param("slurm", marks=pytest.mark.tools)])
def scene(request, tmp_path, monkeypatch):
    kind = request.param
    if kind == "slurm":
        stand = SlurmStand(tmp_path, request.getfixturevalue("slurm"), partition="cpu")
    else:
        stand = FakeStand(tmp_path) if kind == "fake" else Stand(tmp_path)
    monkeypatch.setattr(score_gang.launchers, "open_launcher", lambda *_, **__: stand.again())
    yield Scene(stand, kind, tmp_path)
    poll(lambda: not list(stand.root.glob("*/podset.json")) or kind == "fake")
    stand.close()


@pytest.mark.long
def test_two_ranks_give_the_bytes_of_one_rank_and_leave_no_gang(scene, tmp_path):
    one = scene.run(ranks=1)
    assert len(set(one.values())) == 4
    nodes = 1 if scene.kind == "fake" else 2  # pods of the fake cluster do not find each other
    assert scene.run(ranks=2, nodes=nodes) == one


@pytest.mark.long
def test_a_gang_that_fails_ends_with_the_class_of_its_rank(scene):
    with pytest.raises(ConfigError, match="the model takes x, the data set has text"):
        scene.run(columns=("text",))


def test_pods_have_the_role_and_without_an_image_none_starts(podless, tmp_path, monkeypatch):
    scene = Scene(podless, "fake", tmp_path)
    monkeypatch.setattr(score_gang.launchers, "open_launcher", lambda *_, **__: podless.again())
    monkeypatch.setattr(score_gang, "_followed", lambda launcher, *_: (_ for _ in ()).throw(CapacityError("seen")))
    with pytest.raises(CapacityError, match="seen"):
        scene.run(ranks=2, nodes=2)
    [root] = podless.roots()
    assert root["metadata"]["labels"][ROLE] == "score"
    scene.job = replace(
        scene.job, record=replace(scene.job.record, inputs=replace(scene.job.record.inputs, image=None))
    )
    with pytest.raises(ConfigError, match="pods need an image"):
        scene.run(ranks=2)
