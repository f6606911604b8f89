"""Real gangs with a slow rank: it is named, with what it is slow at, and nobody else is."""

from dataclasses import replace

import pytest
from tests.train.gang import ROOT, tiny_plan

from gangline.fabric.reliability.step_times import WORK
from gangline.spec.mesh import Mesh
from gangline.spec.plan import CheckpointPolicy, ProgramSpec
from gangline.train.loop.health_checks import _trimmed_mean

CODE = ROOT / "tests" / "train" / "paced"


def paced(strategy, **changes):
    given = {"steps": 105, "checkpoint": CheckpointPolicy(every=1000), "global_batch": 8}
    return replace(tiny_plan(strategy, **given | changes), program=ProgramSpec(task="model:Paced"))


def test_a_delay_that_moves_from_phase_to_phase_is_not_cut_away_and_a_single_one_is():
    def step(delayed=None, seconds=0.002):
        work = [0.001 + (seconds if phase == delayed else 0.0) for phase in WORK]
        return [*work, 0.0, 8.0, 0.0]

    in_turn = [step(WORK[number % len(WORK)]) for number in range(10)]
    assert sum(_trimmed_mean(in_turn).tolist()[: len(WORK)]) == pytest.approx(0.007)
    single = [step(), step("data", 1.0), *(step() for _ in range(8))]
    assert sum(_trimmed_mean(single).tolist()[: len(WORK)]) == pytest.approx(0.005)
    disturbed = [*in_turn[:9], [*step("data", 1.0)[:-1], 1.0]]
    assert _trimmed_mean(disturbed).tolist()[-1] == 1.0, "of all steps, also of one that is left out"


@pytest.mark.parametrize("strategy", ["ddp", pytest.param("fsdp", marks=pytest.mark.slow)])
def test_slow_rank_is_named_and_no_one_else(make_gang, strategy):
    gang = make_gang(CODE)
    plan = paced(strategy)
    assert gang.run(plan, PACE="0.004", SLOW="1:2.5:0:1e9") == [0, 0], gang.log()
    found = gang.events(0, "straggler")
    assert [each["slow"] for each in found] == [1]
    assert found[0]["ratio"] > 1.3
    assert found[0]["phase"] == "forward"
    assert found[0]["step"] <= 75
    assert gang.events(1, "straggler") == []


@pytest.mark.slow
def test_rank_that_is_quick_again_is_reported_once(make_gang):
    gang = make_gang(CODE)
    assert gang.run(paced("ddp", steps=300), PACE="0.004", SLOW="1:2.5:0:320") == [0, 0], gang.log()
    assert [each["slow"] for each in gang.events(0, "straggler")] == [1]
    assert [each["slow"] for each in gang.events(0, "straggler_over")] == [1]


@pytest.mark.slow
def test_rank_ten_percent_slower_than_three_others_is_named_within_a_minute(make_gang):
    gang = make_gang(CODE)
    plan = paced("ddp", mesh=Mesh(dp_replicate=4), steps=300)
    assert gang.run(plan, PACE="0.015", SLOW="2:1.1:0:1e9") == [0] * 4, gang.log()
    found = gang.events(0, "straggler")
    assert [each["slow"] for each in found] == [2]
    assert found[0]["mono"] - gang.events(0, "joined")[-1]["mono"] < 60
