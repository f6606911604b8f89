"""Shares of replicas in a plan: which it takes and refuses, and that other sizes of a gang have their own."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.train.gang import tiny_plan

from gangline.errors import ConfigError, IntegrityError
from gangline.spec.mesh import Mesh
from gangline.spec.plan import Compression, Plan, Size
from gangline.spec.replica_shares import shares_words

UNLIKE = Mesh(dp_replicate=2, dp_shard=2)


def test_shares_are_read_back_with_the_plan_and_count_its_passes_by_the_larger_one():
    plan = tiny_plan("hsdp", mesh=UNLIKE, global_batch=16, micro_batch=2, shares=(12, 4))
    assert Plan.from_json(plan.to_json()) == plan
    assert (plan.rank_samples, plan.accumulation) == (6, 3)
    assert replace(plan, shares=()).accumulation == 2


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({"shares": (12, 5)}, "add up to global_batch = 16"),
        ({"shares": (8, 4, 4)}, "2 shares, one for each replica"),
        ({"shares": (15, 1)}, "at least 2 samples for each replica"),
        ({"shares": (12, 4), "strategy": "fsdp", "mesh": Mesh(dp_shard=4)}, "there is one replica"),
        ({"shares": (12, 4), "strategy": "3d", "mesh": Mesh(pp=2, dp_replicate=2)}, "schedule of a pipeline"),
        ({"shares": (12, 4), "strategy": "diloco", "compression": Compression(outer_steps=2)}, "equal weights"),
    ],
)
def test_shares_that_no_gang_could_take_are_refused(changes, wanted):
    plan = tiny_plan("hsdp", mesh=UNLIKE, global_batch=16)
    with pytest.raises(ConfigError, match=wanted):
        replace(plan, **changes)


def test_plan_with_broken_shares_is_not_read():
    plan = tiny_plan("ddp", shares=(6, 2))
    with pytest.raises(IntegrityError, match="add up to global_batch = 8"):
        Plan.from_json(plan.to_json().replace(b'"shares":[6,2]', b'"shares":[6,3]'))


def test_other_sizes_of_a_gang_have_shares_of_their_own_and_the_way_back_has_the_first_ones():
    alone = Size(name="none-1", strategy="none", mesh=Mesh(), micro_batch=4)
    plan = tiny_plan("ddp", shares=(6, 2), sizes=(alone,))
    assert plan.at(1).shares == ()
    assert plan.at(1).at(2) == plan


@given(shares=st.lists(st.integers(1, 3), min_size=1))
def test_words_say_every_share_in_order(shares):
    said = []
    for word in shares_words(shares).split(", "):
        count, _, size = word.rpartition(" x ")
        said += [int(size)] * int(count or 1)
    assert said == shares
