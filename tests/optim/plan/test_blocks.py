"""Blocks by names, buckets of a block each, and which of them a forward pass needs first."""

import pytest

from gangline.errors import ConfigError
from gangline.optim.plan.buckets import OUTSIDE, before_use, blocks_of
from gangline.optim.plan.build import build_plan
from gangline.optim.plan.costs import MuonSpec
from gangline.optim.plan.explain import explain
from gangline.optim.plan.geometry import SyncRate
from gangline.optim.plan.matrix import LogicalMatrix
from gangline.optim.plan.optimizer_plan import PlanOptions
from gangline.optim.plan.simulate import outstanding_bytes, simulate

FORWARD = PlanOptions(overlap="forward", geometry="owner", sync=SyncRate(bytes_per_second=1.0, latency_seconds=0.0))


def matrices(*names, shape=(4, 8)):
    return [LogicalMatrix(fqn=name, shape=shape) for name in names]


def layers(count, *outside):
    return matrices(*(f"layers.{at}.{part}.weight" for at in range(count) for part in ("up", "down")), *outside)


def bucket_names(plan):
    return [{plan.matrices[at].matrix.fqn.rpartition(".")[0] for at in bucket.places} for bucket in plan.buckets]


@pytest.mark.parametrize(
    ("names", "blocks"),
    [
        (["layers.0.w", "layers.10.w", "layers.2.w", "stem.w"], (0, 10, 2, OUTSIDE)),
        (["0.w", "1.w"], (0, 1)),
        (["stem.w", "head.w"], (OUTSIDE, OUTSIDE)),
        (["a.0.experts.0.w", "a.0.experts.1.w", "a.0.experts.2.w", "a.1.mlp.w"], (0, 0, 0, 1)),
        (["encoder.0.w", "decoder.0.w", "decoder.1.w"], (OUTSIDE, 0, 1)),
    ],
    ids=["list", "sequence", "none", "the_outer_list", "the_larger_list"],
)
def test_blocks_are_the_members_of_the_list_that_holds_most(names, blocks):
    assert blocks_of(matrices(*names)) == blocks


def test_buckets_of_updates_that_travel_during_the_forward_pass_are_blocks():
    plan = build_plan(layers(3, "stem.weight"), MuonSpec(), ranks=2, options=FORWARD)
    assert bucket_names(plan) == [
        {"stem"}, {"layers.2.up", "layers.2.down"}, {"layers.1.up", "layers.1.down"}, {"layers.0.up", "layers.0.down"},
    ]  # fmt: skip
    assert "4 buckets by block, up to 64 elements a rank (chosen)" in explain(plan)


def test_a_given_size_of_buckets_and_steps_that_wait_have_none_of_a_block():
    given = PlanOptions(overlap="forward", geometry="owner", bucket_elements=96)
    plan = build_plan(layers(3), MuonSpec(), ranks=2, options=given)
    assert [len(bucket.places) for bucket in plan.buckets] == [3, 3]
    assert "(chosen)" not in explain(plan)
    waits = build_plan(layers(3), MuonSpec(), ranks=2)
    assert (len(waits.buckets), outstanding_bytes(waits)) == (1, 0.0)
    assert "overlap" not in explain(waits)
    with pytest.raises(ConfigError, match=r"optimizer\.bucket_elements: wanted 1 or more, found 0"):
        PlanOptions(bucket_elements=0)


def test_buckets_are_needed_by_block_and_what_is_outside_at_once():
    model = layers(4, "stem.weight", "stem.other.weight")
    places = [[0, 1], [8], [6, 7], [2, 3, 4], [9]]
    assert before_use(model, places) == {1: 0.0, 4: 0.0, 0: 0.0, 3: 0.2, 2: 0.6}


def test_a_forward_pass_waits_for_the_first_block_alone_where_it_computes_long_enough():
    plan = build_plan(layers(4), MuonSpec(), ranks=2, options=FORWARD)
    travel = 4 * 2 * 32 / 2  # bytes of a block, half of which each rank sends
    nothing, some, enough = (simulate(plan, forward_seconds=travel * each) for each in (0, 2, 4))
    assert nothing.publish_seconds == some.publish_seconds == 4 * travel
    assert [each.exposed_seconds for each in (nothing, some, enough)] == [4 * travel, 2.5 * travel, travel]
    off = build_plan(layers(4), MuonSpec(), ranks=2)
    assert simulate(off, forward_seconds=1e9).exposed_seconds == simulate(off).publish_seconds
    assert "which hides 0.00 ms and waits for" in explain(plan)
