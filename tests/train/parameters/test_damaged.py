"""A version whose files are damaged: servers and workers go on from the one before, and end if that is damaged, too."""

import pytest
import torch
from tests.train.parameters.objects import START, World, change_of

from gangline.errors import IntegrityError
from gangline.train.parameters.exchange import StoreExchange
from gangline.train.parameters.server import PushInbox


@pytest.fixture
def world(tmp_path):
    """Two versions beyond the first, each of one push."""
    made = World(tmp_path, quorum=1, steps=40, max_ahead=1)
    merger = made.merger()
    for block in range(2):
        merger.add(made.push(block, change_of(block), worker=1))
        merger.merge()
    return made


def damage(world, head, *, what="weights"):
    key = getattr(world.objects.keys, what)(0, head.file)
    data = bytearray(world.store.get(key).data)
    data[-1] ^= 1
    world.store.put(key, bytes(data))


def exchange_of(world):
    found = StoreExchange(world.objects, world.workers[1], life="1")
    found.open(world.layout, START)
    return found


@pytest.mark.row("PS3")
@pytest.mark.parametrize("what", ["weights", "state"])
def test_server_goes_on_from_the_version_before_and_counts_what_was_lost(world, what):
    head = world.merger().head
    damage(world, head, what=what)
    merger = world.merger()
    assert "digest" in merger.damage
    assert (merger.head.version, merger.head.done.mark) == (2, 1), "what was merged last is not in these weights"
    world.push(2, change_of(2), worker=1)
    pushes, _ = PushInbox(world.objects, shards=4, blocks=world.blocks).read(merger.head.done.mark)
    for push in pushes:
        merger.add(push)
    merge = merger.merge()
    assert [push.block for push in merge.pushes] == [2]
    assert list(merge.refused) == [1], "its change was deleted with its merge"
    assert (merger.head.version, merger.head.done.mark, merger.head.refused, merger.head.merged) == (3, 3, 1, 2)
    assert world.merger().damage == ""


@pytest.mark.row("PS3")
def test_worker_takes_the_version_before_and_says_why_until_there_is_a_sound_one(world):
    merger = world.merger()
    damage(world, merger.head)
    exchange = exchange_of(world)
    exchange.once()
    arrival = exchange.take_arrivals()[0]
    assert "digest" in arrival.damage
    assert (arrival.head.version, arrival.head.done.mark) == (1, 1)
    assert not torch.equal(arrival.weights, START[:4])
    merger.add(world.push(2, change_of(2), worker=1))
    merger.merge()
    exchange.once()
    arrival = exchange.take_arrivals()[0]
    assert (arrival.head.version, arrival.damage) == (3, "")
    assert torch.equal(arrival.weights, merger._weights[:4])


@pytest.mark.row("PS3")
def test_two_damaged_versions_end_server_and_worker(world):
    head = world.merger().head
    damage(world, head)
    damage(world, head.older)
    with pytest.raises(IntegrityError, match="nor can the version before be read"):
        world.merger()
    with pytest.raises(IntegrityError, match="nor can the version before be read"):
        exchange_of(world).once()


@pytest.mark.row("PS3")
def test_damaged_first_version_has_none_before_it(tmp_path):
    world = World(tmp_path, quorum=1)
    damage(world, world.merger().head)
    with pytest.raises(IntegrityError, match="digest"):
        world.merger()
