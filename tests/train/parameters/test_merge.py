"""Merges of a shard: servers that are killed at any write, or work twice, leave the weights of the unbroken order."""

import pytest
import torch
from tests.train.parameters.objects import START, World, change_of

from gangline.train.parameters.merge import nesterov


class Killed(BaseException):
    """The process is gone."""


class DyingStore:
    """A store whose process is killed before or after its n-th write."""

    def __init__(self, store, writes, *, after):
        self._store, self._left, self._after = store, writes, after

    def __getattr__(self, name):
        call = getattr(self._store, name)
        return self._dying(call) if name in {"put", "put_if_absent", "compare_and_set", "delete"} else call

    def _dying(self, call):
        def write(*arguments):
            self._left -= 1
            if self._left < 0 and not self._after:
                raise Killed
            answer = call(*arguments)
            if self._left < 0:
                raise Killed
            return answer

        return write


def weights_of(merger):
    """As they are in the store."""
    return merger.__class__(
        merger._objects, merger.shard, merger._plan, blocks=merger._blocks
    )._weights  # what a server that begins now would have


def merged(world, merger, blocks):
    for block in blocks:
        merger.add(world.push(block, change_of(block), worker=block % 2 + 1))
    return merger.merge()


@pytest.fixture
def unbroken(tmp_path):
    """Weights after two merges of two pushes, by shard."""
    world = World(tmp_path / "unbroken", kind="int8")
    found = {}
    for shard in (0, 3):
        merger = world.merger(shard)
        merged(world, merger, (0, 1))
        merged(world, merger, (2, 3))
        found[shard] = weights_of(merger)
    return found


@pytest.mark.row("PS1")
@pytest.mark.parametrize("shard", [0, 3], ids=["parameters", "buffers"])
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("writes", range(9))
def test_server_that_is_killed_at_a_write_loses_no_push_and_merges_none_twice(tmp_path, unbroken, writes, after, shard):
    world = World(tmp_path / "store", kind="int8")
    pushes = [world.push(block, change_of(block), worker=block % 2 + 1) for block in (0, 1)]
    merger = world.merger(shard)
    merged(world, merger, ())
    dying = world.merger(shard, DyingStore(world.store, writes, after=after))
    try:
        for push in pushes:
            dying.add(push)
        dying.merge()
    except Killed:
        pass
    other = world.merger(shard)
    for push in pushes:
        other.add(push)
    if other.is_due():
        other.merge()
    assert other.head.version == 1
    merged(world, other, (2, 3))
    assert torch.equal(weights_of(other), unbroken[shard])
    assert (other.head.done.mark, other.head.dropped, other.head.refused) == (4, 0, 0)


@pytest.mark.row("PS1")
def test_of_two_servers_of_a_shard_one_moves_the_head_and_the_other_reads_it_again(tmp_path, unbroken):
    world = World(tmp_path / "store", kind="int8")
    first, second = world.merger(), world.merger()
    pushes = [world.push(block, change_of(block), worker=block % 2 + 1) for block in (0, 1)]
    for push in pushes:
        first.add(push)
        second.add(push)
    assert first.merge() is not None
    assert second.merge() is None
    assert not second.is_due()
    merged(world, second, (2, 3))
    assert torch.equal(weights_of(second), unbroken[0])


def test_an_answer_that_was_lost_on_the_way_is_no_loss(tmp_path, unbroken):
    world = World(tmp_path / "store", kind="int8")

    class Deaf:
        def __getattr__(self, name):
            call = getattr(world.store, name)
            return (lambda *arguments: call(*arguments) and None) if name == "compare_and_set" else call

    merger = world.merger(0, Deaf())
    assert merged(world, merger, (0, 1)) is not None
    assert merged(world, merger, (2, 3)) is not None
    assert torch.equal(weights_of(merger), unbroken[0])


def test_step_of_all_workers_is_that_of_torch():
    weights, momentum = torch.nn.Parameter(START.clone()), torch.zeros(12)
    ours = START.clone()
    sgd = torch.optim.SGD([weights], lr=0.7, momentum=0.9, nesterov=True)
    for number in range(5):
        weights.grad = change_of(number)
        sgd.step()
        nesterov(ours, momentum, change_of(number), lr=0.7, decay=0.9, share=1.0)
    torch.testing.assert_close(ours, weights.detach(), atol=1e-6, rtol=0)


@pytest.mark.row("PS4")
def test_four_steps_of_a_quarter_go_as_far_as_a_whole_one_in_the_long_run():
    ways = {}
    for share in (1.0, 0.25):
        weights, momentum = torch.zeros(1), torch.zeros(1)
        for _ in range(round(100 / share)):
            nesterov(weights, momentum, torch.ones(1), lr=0.7, decay=0.9, share=share)
        ways[share] = float(weights)
    assert ways[0.25] == pytest.approx(ways[1.0], rel=0.1)


def test_merge_waits_for_its_quorum_or_for_the_grace_of_the_first_push(tmp_path):
    times = iter([0.0, 1.0, 4.0, 5.0, 6.0, 6.0])
    world = World(tmp_path, quorum=2)
    merger = world.merger(now=lambda: next(times))
    assert not merger.is_due()
    merger.add(world.push(1, change_of(1)))  # at 0
    assert not merger.is_due()  # at 1
    assert not merger.is_due()  # at 4
    assert merger.is_due()  # at 5
    merger.add(world.push(0, change_of(0)))
    assert merger.is_due()


def test_last_blocks_wait_for_no_quorum(tmp_path):
    world = World(tmp_path, quorum=2, steps=6)
    assert world.blocks.count == 3
    merger = world.merger()
    merged(world, merger, (0, 1))
    merger.add(world.push(2, change_of(2)))
    assert merger.is_due()


def test_push_that_is_older_than_allowed_is_dropped_and_counted(tmp_path):
    world = World(tmp_path, quorum=1, max_age=1, steps=16)
    merger = world.merger()
    merged(world, merger, (0,))
    merged(world, merger, (1,))
    found = merged(world, merger, (2,))
    assert (found.dropped, found.pushes, merger.head.dropped) == ((2,), (), 1)
    assert merger.head.version == 2
    assert 2 in merger.head.done


@pytest.mark.parametrize("pull", ["fp32", "bf16"])
def test_two_versions_stay_and_a_server_that_begins_continues_from_whole_weights(tmp_path, pull):
    world = World(tmp_path, quorum=1, steps=16, pull=pull)
    merger = world.merger()
    for block in range(4):
        merged(world, merger, (block,))
    names = {entry.key.rsplit("/", 1)[1][:8] for entry in world.store.list(world.objects.keys.files(0))}
    assert names == {"00000003", "00000004"}
    assert torch.equal(weights_of(merger), merger._weights)  # what it continues with
