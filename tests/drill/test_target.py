"""Where a drill strikes if nobody says so: between two saves, so that there is something to resume from."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.train.gang import tiny_plan

from gangline.drill.catalogue import DRILLS, DrillRequest
from gangline.errors import UsageError
from gangline.spec.plan import CheckpointPolicy


def target(steps, every, *, name="kill-rank", step=None, seed=1):
    plan = replace(tiny_plan(), steps=steps, checkpoint=CheckpointPolicy(every=every))
    request = DrillRequest(kind=DRILLS[name], rank=None, step=step, seconds=None, seed=seed)
    return request.choose_target(plan)


@given(steps=st.integers(2, 2000), every=st.integers(1, 500), seed=st.integers(0, 50))
def test_it_strikes_within_the_training_and_after_a_save_where_there_is_one(steps, every, seed):
    step = target(steps, every, seed=seed).step
    assert 1 <= step < steps
    if every + 1 < steps:
        assert step > every or every == 1
    if every > 1 and every + 1 < steps and step + every <= steps:
        assert step % every == every // 2, "half an interval after the save"


def test_a_short_training_with_few_saves_resumes_from_one():
    """A third of 12 steps is the step of the first save."""
    assert {target(12, 4, seed=seed).step for seed in range(20)} == {6}
    assert target(60, 50).step == 55
    assert target(12, 4, step=4).step == 4


def test_an_outage_of_the_store_begins_before_a_save_and_what_is_not_there_is_refused():
    assert target(12, 4, name="kill-store").step in (3, 7)
    with pytest.raises(UsageError, match="inject between 1 and 11"):
        target(12, 4, step=12)
