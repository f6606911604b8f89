"""The worker's side of the store: what it sends, how long it trains without an answer, and what it gives back."""

import pytest
import torch
from tests.train.parameters.objects import START, World

from gangline.errors import StorageError
from gangline.train.parameters.exchange import StoreExchange
from gangline.train.parameters.layout import BlockPush, Claim
from gangline.train.parameters.worker import ChangeEncoder


class Line:
    """A store whose line may be cut."""

    def __init__(self, store):
        self._store, self.is_cut = store, False

    def __getattr__(self, name):
        if self.is_cut:
            raise StorageError("the line is cut")
        return getattr(self._store, name)


class LostAnswers:
    """A store that loses the answer to a write, before it happens or afterwards."""

    def __init__(self, store, *, writes=True):
        self._store, self._writes = store, writes

    def put_if_absent(self, key, data):
        if self._writes:
            self._store.put_if_absent(key, data)
        raise StorageError("the answer was lost")

    def __getattr__(self, name):
        return getattr(self._store, name)


@pytest.fixture
def world(tmp_path):
    return World(tmp_path, steps=40, max_ahead=2)


@pytest.fixture
def line(world):
    return Line(world.store)


@pytest.fixture
def exchange(world, line):
    found = StoreExchange(world.over(line), world.workers[0], life="1")
    found.open(world.layout, START)
    found.once()
    return found


def send(world, exchange, block):
    encoder = ChangeEncoder(world.shards, world.layout.size, world.plan.parameters.compression)
    push = BlockPush(
        run=world.plan.run, block=block, attempt=1, worker=1, versions=(0, 0, 0, 0),
        samples=world.blocks.samples(block), loss=1.0, tokens=0, seconds=1.0, silent_seconds=0.0, wire_bytes=(0, 0),
        digests=(),
    )  # fmt: skip
    exchange.send(push, encoder.encode(torch.ones(12), START))


def pushed(world, block):
    return world.objects.read(BlockPush, world.objects.keys.push(block))[0]


@pytest.mark.row("PS2")
def test_worker_that_is_cut_off_trains_what_it_has_claimed_and_sends_it_later(world, line, exchange):
    line.is_cut = True
    trained = []
    while (block := exchange.take_block()) is not None:
        trained.append(block)
        send(world, exchange, block)
        exchange._answered -= 60.0  # a minute passes
        with pytest.raises(StorageError):
            exchange.once()
    assert trained == [0, 1], "as many as it may claim ahead"
    line.is_cut = False
    exchange.once()
    assert [pushed(world, block).worker for block in trained] == [1, 1]
    assert [pushed(world, block).silent_seconds for block in trained] == [pytest.approx(120.0, abs=10.0), 0.0]


@pytest.mark.row("PS2")
def test_worker_whose_changes_are_not_sent_takes_no_further_block(world, exchange):
    first, second = exchange.take_block(), exchange.take_block()
    send(world, exchange, first)
    send(world, exchange, second)
    exchange._claimed.append(2)
    assert exchange.take_block() is None
    exchange.once()
    assert exchange.take_block() == 2


@pytest.mark.row("PS2")
def test_worker_that_leaves_gives_back_what_it_has_claimed_and_not_what_it_has_sent(world, exchange):
    block = exchange.take_block()
    send(world, exchange, block)
    exchange.once()
    assert len(world.store.list(world.objects.keys.claims)) > 1
    exchange.close(seconds=0.0)
    (claim,) = world.store.list(world.objects.keys.claims)
    assert claim.key == world.objects.keys.claim(block, 1)


def test_push_of_a_block_that_another_worker_has_pushed_leaves_nothing(world, exchange):
    block = exchange.take_block()
    send(world, exchange, block)
    other = world.push(block, torch.ones(12), worker=2, attempt=2)
    exchange.once()
    assert pushed(world, block) == other
    changes = {each.key.rsplit("/", 2)[1] for each in world.store.list(f"{world.objects.keys.prefix}/changes/")}
    assert changes == {f"{block:08d}.0002"}


@pytest.mark.row("PS2")
def test_write_whose_answer_was_lost_is_settled_by_what_is_there(world):
    key = world.objects.keys.claim(7, 1)
    mine, other = (Claim(run=world.plan.run, worker=worker, life="1") for worker in (1, 2))
    with pytest.raises(StorageError, match="the answer was lost"):
        world.over(LostAnswers(world.store, writes=False)).put_if_absent(key, mine)
    losing = world.over(LostAnswers(world.store))
    assert losing.put_if_absent(key, mine) is not None, "it was written"
    assert losing.put_if_absent(key, other) is None, "another one was first"
