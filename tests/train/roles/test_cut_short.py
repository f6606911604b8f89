"""A training that ends before its schedule does what the whole one did up to there, to the last bit."""

import pytest
from tests.train.gang import tiny_plan

from gangline.spec.mesh import Mesh
from gangline.spec.plan import CheckpointPolicy, Job, Schedule

STEPS, END = 20, 8
WHOLE = tiny_plan(
    "none", steps=STEPS, mesh=Mesh(), schedule=Schedule(kind="cosine", warmup_steps=2),
    checkpoint=CheckpointPolicy(every=STEPS),
)  # fmt: skip


def losses(gang):
    return [loss for _, loss in gang.result().jobs[0].losses]


@pytest.fixture
def pair(make_gang):
    def run(whole, cut):
        gangs = make_gang(), make_gang()
        for gang, plan in zip(gangs, (whole, cut), strict=True):
            assert gang.run(plan) == [0], gang.log()
        return gangs

    return run


def test_its_steps_are_those_of_the_whole_training_and_its_last_one_is_saved(pair):
    whole, cut = pair(WHOLE, tiny_plan("none", **_like(WHOLE), stop_at=END))
    assert len(losses(whole)) == STEPS
    assert losses(cut) == losses(whole)[:END]
    assert cut.result().final_step == END
    assert cut.result().checkpoint.endswith(f"step-{END:08d}")
    rates = [[row["learning_rate"] for row in gang.metrics()] for gang in (whole, cut)]
    assert rates[1] == rates[0][:END]
    assert len(set(rates[1])) > END // 2


def test_the_other_seeds_of_its_band_end_where_it_ends(make_gang):
    gang = make_gang()
    plan = tiny_plan("none", **_like(WHOLE), stop_at=END, role="evaluate", jobs=(Job(seed=2), Job(seed=3)))
    assert gang.run(plan) == [0], gang.log()
    assert [job.step for job in gang.result().jobs] == [END, END]


def _like(plan):
    return {name: getattr(plan, name) for name in ("steps", "mesh", "schedule", "checkpoint")}
