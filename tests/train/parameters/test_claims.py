"""Claims: each block is trained by one worker, whoever comes and goes."""

import os
import random
import time

import pytest
from tests.train.parameters.objects import World, change_of

from gangline.train.parameters.claims import LEAST_LEASE_SECONDS, Claims
from gangline.train.parameters.layout import BlockSet, Claim


def claims_of(world, worker, *, life="1", store=None):
    objects = world.over(store) if store is not None else world.objects
    claim = Claim(run=world.plan.run, worker=worker, life=life)
    return Claims(objects, world.plan.parameters.table, world.blocks, claim)


class StaleStore:
    """A store whose listings are as old as the first."""

    def __init__(self, store):
        self._store, self._listed = store, {}

    def __getattr__(self, name):
        return getattr(self._store, name)

    def list(self, prefix, after="", limit=1000):
        return self._listed.setdefault((prefix, after), self._store.list(prefix, after, limit))


@pytest.mark.row("PS2")
def test_two_workers_that_see_the_same_listing_never_hold_the_same_block(tmp_path):
    world = World(tmp_path, steps=40)
    first, second = claims_of(world, 1), claims_of(world, 2, store=StaleStore(world.store))
    second._list(0)  # it sees none of the first's claims
    taken = [first.refill(BlockSet(), 0), second.refill(BlockSet(), 0)]
    assert not set(taken[0]) & set(taken[1])


@pytest.mark.row("PS2")
@pytest.mark.parametrize("seed", range(3))
def test_every_block_is_merged_once_though_workers_die_and_come_back(tmp_path, seed):
    world = World(tmp_path, steps=24, quorum=1)
    merger, draws = world.merger(), random.Random(seed)
    lives = {1: 1, 2: 1}
    workers = {number: claims_of(world, number) for number in lives}
    held = {number: [] for number in lives}
    merged = []
    for _ in range(400):
        number = draws.choice((1, 2))
        if draws.random() < 0.2:  # it dies, and its next life knows nothing
            lives[number] += 1
            workers[number], held[number] = claims_of(world, number, life=str(lives[number])), []
        held[number] += workers[number].refill(merger.head.done, len(held[number]))
        if held[number]:
            block = held[number].pop(0)
            attempt = workers[number].held.pop(block)
            merger.add(world.push(block, change_of(block), worker=number, attempt=attempt, versions=(0,) * 4))
            if (merge := merger.merge()) is not None:
                merged += [each.block for each in merge.pushes] + list(merge.dropped)
        if merger.head.done.mark == world.blocks.count:
            break
    assert sorted(merged) == list(range(world.blocks.count))


def test_block_of_an_earlier_life_is_taken_at_once_and_that_of_another_worker_is_not(tmp_path):
    world = World(tmp_path, steps=4)
    (block,) = claims_of(world, 1).refill(BlockSet(), 0)
    assert block not in claims_of(world, 2).refill(BlockSet(), 0)
    assert claims_of(world, 1, life="2").refill(BlockSet(), 0) == [block]


def backdate(folder, seconds):
    (path,) = folder.rglob("00000000.0001.json")
    then = time.time() - seconds
    os.utime(path, (then, then))


@pytest.mark.parametrize("seconds", [LEAST_LEASE_SECONDS + 60, -86400], ids=["overdue", "of tomorrow"])
def test_claim_that_is_overdue_or_of_tomorrow_holds_no_more(tmp_path, seconds):
    world = World(tmp_path, steps=2)
    assert claims_of(world, 1).refill(BlockSet(), 0) == [0]
    other = claims_of(world, 2)
    assert other.refill(BlockSet(), 0) == []
    backdate(tmp_path, seconds)
    assert other.refill(BlockSet(), 0) == [0]
    assert other.held == {0: 2}


def test_worker_holds_fewer_blocks_ahead_when_few_are_left(tmp_path):
    world = World(tmp_path, steps=2 * 40)
    claims = claims_of(world, 1)
    assert len(claims.refill(BlockSet(), 0)) == 4
    assert claims.refill(BlockSet(mark=38), 0) == [38]


def test_block_that_was_given_back_is_free(tmp_path):
    world = World(tmp_path, steps=2)
    first = claims_of(world, 1)
    assert first.refill(BlockSet(), 0) == [0]
    first.give_back(0)
    assert claims_of(world, 2).refill(BlockSet(), 0) == [0]


def test_end_of_a_run_is_claimed_once(tmp_path):
    world = World(tmp_path, steps=2)
    first = claims_of(world, 1)
    assert first.take_final()
    assert first.take_final()
    assert not claims_of(world, 2).take_final()
    assert claims_of(world, 1, life="2").take_final()
