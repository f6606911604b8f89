"""Workers that join a run: their pushes have the share that those of its own workers have, and they may leave."""

import pytest
import torch
from tests.train.parameters.objects import START, World, change_of

from gangline.planner.plans import worker_plan
from gangline.train.parameters.exchange import StoreExchange
from gangline.train.parameters.layout import BlockSet

LR, JOINED = 0.7, 3


@pytest.mark.row("PS4")
def test_merge_of_two_workers_and_one_that_joined_is_a_whole_step(tmp_path):
    world = World(tmp_path, outer_lr=LR, steps=24)
    merger, weights = world.merger(), torch.nn.Parameter(START[:4].clone())
    sgd = torch.optim.SGD([weights], lr=LR, momentum=0.9, nesterov=True)
    for version in range(3):
        changes = [change_of(3 * version + worker) for worker in range(3)]
        for worker, change in enumerate(changes, start=1):
            merger.add(world.push(3 * version + worker - 1, change, worker=worker, versions=(version,) * 4))
        merger.merge()
        weights.grad = sum(changes)[:4] / 3
        sgd.step()
    torch.testing.assert_close(world.merger()._weights, weights.detach(), atol=1e-6, rtol=0)


def test_worker_that_left_counts_until_none_of_its_pushes_could_be_merged(tmp_path):
    world = World(tmp_path, steps=24, max_age=2)
    merger, found = world.merger(), []
    for block, worker in enumerate((1, JOINED, 2, 1, 2, 1)):
        push = world.push(block, change_of(block), worker=worker, versions=(block,) * 4)
        merger.add(push)
        merger.merge()
        found.append(2 + len(merger._joined))
    assert found == [2, 3, 3, 3, 2, 2]


@pytest.mark.parametrize(("worker", "takes"), [(1, True), (JOINED, False)])
def test_worker_that_joined_leaves_the_end_of_the_run_to_its_own_workers(tmp_path, worker, takes):
    world = World(tmp_path)
    exchange = StoreExchange(world.objects, worker_plan(world.plan, worker), life="1")
    exchange.open(world.layout, START)
    for shard in range(len(world.shards)):
        merger = world.merger(shard)
        for block in range(world.blocks.count):
            merger.add(world.push(block, change_of(block)))
        merger.merge()
        assert merger.head.done == BlockSet(mark=world.blocks.count)
    exchange.once()
    assert (exchange.saves, exchange.is_over) == (takes, not takes)
