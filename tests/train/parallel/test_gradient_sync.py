"""Gradients that shards reduce after each micro-batch: the same training, no whole gradients between two."""

from types import SimpleNamespace

import pytest
from tests.train.parallel.memory_plans import one_process, plan_of
from tests.train.trained import trained, weight_gap

from gangline.train.parallel.data_parallel import Sharded


@pytest.mark.parametrize("strategy", ["fsdp", "zero2"])
def test_reducing_after_each_micro_batch_trains_the_same(make_gang, strategy):
    """To the rounding of sums, which are taken in another order."""
    plan = plan_of(strategy, memory={"gradient_sync": "each"})
    assert plan.accumulation == 2
    found, losses = trained(make_gang(), plan)
    wanted, expected = one_process()
    assert weight_gap(found, wanted) < 1e-5
    assert losses == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("last", [False, True])
def test_replicas_average_in_the_last_micro_batch_alone(last):
    """They may have unlike numbers of micro-batches: in any other one they would wait for each other for ever."""
    said = {}
    root = SimpleNamespace(
        set_requires_gradient_sync=lambda value: said.update(shards=value),
        set_requires_all_reduce=lambda value: said.update(replicas=value),
    )
    Sharded(root, reduces_each=True).set_sync(last)
    assert said == {"shards": True, "replicas": last}
