"""A wish for another number of ranks, on its way from the store to the keeper."""

import json

from tests.train.gang import tiny_plan

from gangline.keeper.ipc.requests import RESIZE_FILE, ResizeRequestFile
from gangline.spec.gang.status import ResizeRequest, resize_key
from gangline.spec.mesh import Mesh
from gangline.spec.plan import CheckpointPolicy, Size

SIZES = (Size(name="none", strategy="none", mesh=Mesh(), micro_batch=4),)


def test_rank_0_of_an_elastic_gang_brings_the_wish_of_the_store_to_its_keeper(make_gang):
    gang, plan = make_gang(), tiny_plan("ddp", sizes=SIZES)
    gang.store.put(resize_key(plan.run_prefix), ResizeRequest(ranks=1).to_json())
    assert gang.run(plan, STRIKE="slow:1:3") == [0, 0], gang.log()
    assert ResizeRequestFile(gang.home).ranks() == 1


def test_wish_that_does_not_read_is_refused_and_training_continues(make_gang):
    gang, plan = make_gang(), tiny_plan("ddp", sizes=SIZES)
    gang.store.put(resize_key(plan.run_prefix), b'{"ranks": "many"}')
    assert gang.run(plan, STRIKE="slow:1:3") == [0, 0], gang.log()
    assert not (gang.home / RESIZE_FILE).exists()
    assert "ranks" in gang.events(event="resize_refused")[0]["reason"]


def test_gang_that_is_not_elastic_looks_for_nothing(make_gang):
    gang, plan = make_gang(), tiny_plan("ddp")
    gang.store.put(resize_key(plan.run_prefix), ResizeRequest(ranks=1).to_json())
    assert gang.run(plan, STRIKE="slow:1:3") == [0, 0], gang.log()
    assert not (gang.home / RESIZE_FILE).exists()


def test_newest_wish_counts_and_what_is_none_binds_no_one(tmp_path):
    wish, path = ResizeRequestFile(tmp_path), tmp_path / RESIZE_FILE
    assert wish.ranks() is None
    for text, ranks in (('{"ranks": 3}', 3), ('{"ranks": 2}', 2), ('{"ranks": 0}', None), ("torn", None)):
        (tmp_path / "new").write_text(text)
        (tmp_path / "new").rename(path)
        assert wish.ranks() == ranks, text
    path.unlink()
    path.write_text(json.dumps({"ranks": 4}))
    assert wish.ranks() == 4


def test_generation_saves_as_often_as_its_keeper_says(make_gang):
    gang, plan = make_gang(), tiny_plan("ddp", checkpoint=CheckpointPolicy(every=100, asynchronous=False))
    assert gang.run(plan, GANGLINE_SAVE_EVERY="3") == [0, 0], gang.log()
    assert [each["step"] for each in gang.events(event="saved")] == [*range(3, plan.steps, 3), plan.steps]
