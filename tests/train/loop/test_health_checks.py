"""What a gang asks for when a rank is slow and the plan says `evict`."""

import json
from dataclasses import replace

import pytest
from tests.train.gang import ROOT, tiny_plan

from gangline.spec.mesh import Mesh
from gangline.spec.plan import CheckpointPolicy, ProgramSpec, Recovery, Size

CODE = ROOT / "tests" / "train" / "paced"
ALONE = Size(name="none-1", strategy="none", mesh=Mesh(), micro_batch=8)


@pytest.mark.parametrize(("sizes", "asks"), [((ALONE,), True), pytest.param((), False, marks=pytest.mark.slow)])
def test_node_of_a_slow_rank_is_asked_to_leave_where_the_plan_is_ready_for_that(make_gang, sizes, asks):
    gang = make_gang(CODE)
    plan = tiny_plan(
        "ddp", steps=75, checkpoint=CheckpointPolicy(every=1000), recovery=Recovery(stragglers="evict"), sizes=sizes
    )
    plan = replace(plan, program=ProgramSpec(task="model:Paced"))
    assert gang.run(plan, PACE="0.004", SLOW="1:2.5:0:1e9", LOCAL_WORLD_SIZE="1") == [0, 0], gang.log()
    said = gang.events(0, "straggler_answered")
    assert len(said) == 1
    if asks:
        wish = json.loads((gang.home / "evict.json").read_text())
        assert (wish["generation"], wish["rank"]) == (0, 1)
        assert "is to leave" in said[0]["reason"]
    else:
        assert not (gang.home / "evict.json").exists()
        assert "train.ranks" in said[0]["reason"]
