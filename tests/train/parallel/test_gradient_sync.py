"""Gradients that shards reduce after each micro-batch: the same training, no whole gradients between two."""

import pytest
from tests.train.parallel.memory_plans import one_process, plan_of
from tests.train.trained import trained, weight_gap


@pytest.mark.parametrize("strategy", ["fsdp", "zero2"])
def test_reducing_after_each_micro_batch_trains_the_same(make_gang, strategy):
    """To the rounding of sums, which are taken in another order."""
    plan = plan_of(strategy, memory={"gradient_sync": "each"})
    assert plan.accumulation == 2
    found, losses = trained(make_gang(), plan)
    wanted, expected = one_process()
    assert weight_gap(found, wanted) < 1e-5
    assert losses == pytest.approx(expected, rel=1e-5)
