"""What one strategy trained and saved, a prove gang opens under another: every tensor, the optimizer's too."""

from dataclasses import replace

import pytest
from tests.train.parallel.deep import CODE, deep_plan

from gangline.spec.mesh import Mesh
from gangline.spec.plan import CheckpointPolicy, Job

PLANS = {
    "one": deep_plan(Mesh()),
    "fsdp": deep_plan(Mesh(dp_shard=2)),
    "zero1": replace(deep_plan(Mesh(dp_replicate=2)), strategy="zero1"),
    "pp": deep_plan(Mesh(pp=2)),
    "interleaved": deep_plan(Mesh(pp=2), "interleaved_1f1b"),
    "pp x fsdp": deep_plan(Mesh(pp=2, dp_shard=2)),
}


@pytest.mark.parametrize(
    ("trained", "opened"),
    [
        ("interleaved", "zero1"), ("zero1", "pp"),
        *(pytest.param(*pair, marks=pytest.mark.slow) for pair in
          (("pp", "one"), ("one", "interleaved"), ("pp x fsdp", "fsdp"), ("fsdp", "pp x fsdp"))),
    ],
)  # fmt: skip
def test_checkpoint_opens_under_another_strategy_with_every_tensor_equal(make_gang, trained, opened):
    gang = make_gang(CODE)
    plan = replace(PLANS[trained], steps=2, checkpoint=CheckpointPolicy(every=2))
    assert set(gang.run(plan)) == {0}, gang.log()
    key = gang.result().checkpoint
    prove = replace(PLANS[opened], role="prove", steps=2, jobs=(Job(seed=1, train=False, checkpoint=key),))
    assert set(gang.run(prove)) == {0}, gang.log()
    digests = gang.result().digests
    assert (digests.equal, digests.different) == (digests.total, ())
    assert digests.total > 3 * 2 * 5, "parameters of five blocks with two moments each"
