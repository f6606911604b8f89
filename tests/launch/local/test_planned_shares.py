"""A gang of two virtual nodes whose replicas begin with unlike shares, from its PodSet to its result."""

import pytest
from tests.launch.local.machine import Machine
from tests.train.gang import tiny_plan


@pytest.mark.long
def test_gang_of_unlike_shares_starts_and_has_the_losses_of_equal_ones(tmp_path):
    losses = []
    for shares in ((6, 2), ()):
        machine = Machine(tmp_path / f"machine-{len(shares)}")
        plan = tiny_plan("ddp", steps=4, micro_batch=2, shares=shares)
        end = machine.train(plan)
        machine.close()
        assert end.exit_code == 0, end.reason
        losses.append([loss for _, loss in machine.losses(plan)])
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    assert len(losses[0]) == 4
