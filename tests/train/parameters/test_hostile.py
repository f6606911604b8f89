"""Objects that no honest worker writes: refused by reason, in bounded memory, and the run goes on."""

from dataclasses import replace
from hashlib import sha256

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.train.parameters.objects import START, World, change_of

from gangline.errors import ConfigError, IntegrityError, NonFiniteError
from gangline.spec.compression import Compression
from gangline.train.parameters import layout
from gangline.train.parameters.encode import ChangeCodec, file_bytes, pack, unpack
from gangline.train.parameters.exchange import StoreExchange
from gangline.train.parameters.layout import Claim, Head, TensorPlace, seal
from gangline.train.parameters.server import PushInbox

KINDS = ("none", "bf16", "int8", "topk")


class CountingStore:
    """A store that says how many bytes were read of one object at most."""

    def __init__(self, store):
        self._store, self.most = store, 0

    def __getattr__(self, name):
        return getattr(self._store, name)

    def get(self, key, start=0, size=None):
        blob = self._store.get(key, start, size)
        self.most = max(self.most, len(blob.data) if blob else 0)
        return blob


def refused_by_merge(world, store=None, *, block=0, replaced=None, **changes):
    """Reason for which a merge refuses the change of a push, whose file may be replaced."""
    push = world.push(block, change_of(block), **changes)
    if replaced is not None:
        world.store.put(world.objects.keys.change(push, 0), replaced)
    merger = world.merger(store=store)
    merger.add(push)
    merge = merger.merge()
    assert (merge.pushes, merger.head.refused, merger.head.version) == ((), 1, 0)
    assert block in merger.head.done
    return merge.refused[block]


@pytest.mark.row("PS3")
def test_change_that_is_ten_times_too_large_is_refused_and_not_read(tmp_path):
    world = World(tmp_path, quorum=1)
    store = CountingStore(world.store)
    said = refused_by_merge(world, store, replaced=bytes(100_000))
    assert "wanted at most" in said
    assert store.most < 2000


@pytest.mark.row("PS3")
def test_changes_that_do_not_fit_are_refused_by_reason(tmp_path):
    world = World(tmp_path, quorum=1, steps=16)
    assert "digest" in refused_by_merge(world, replaced=pack({"values": torch.zeros(4)}))
    world = World(tmp_path / "later", quorum=1)
    assert "later version" in refused_by_merge(world, versions=(7, 0, 0, 0))
    world = World(tmp_path / "nan", quorum=1)
    wild = pack({"values": torch.full((4,), torch.nan)})
    digests = (sha256(wild).hexdigest(), *("0" * 64 for _ in range(3)))
    assert "finite" in refused_by_merge(world, replaced=wild, digests=digests)


@pytest.mark.row("PS3")
def test_other_shards_merge_a_push_that_one_refused(tmp_path):
    world = World(tmp_path, quorum=1)
    push = world.push(0, change_of(0))
    world.store.delete(world.objects.keys.change(push, 0))
    for shard, merged in ((0, 0), (1, 1)):
        merger = world.merger(shard)
        merger.add(push)
        assert len(merger.merge().pushes) == merged


def inbox_of(world):
    return PushInbox(world.objects, shards=len(world.shards), blocks=world.blocks)


@pytest.mark.row("PS3")
@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"digests": ("0" * 64,)}, "changes of 4 shards, found 1"),
        ({"samples": 10**9}, "wanted 16 samples"),
        ({"worker": 2}, "claim of block 0 by worker 2"),
        ({"attempt": 2}, "claim of block 0 by worker 1"),
        ({"versions": (0, -1, 0, 0)}, "versions from 0 on, found -1"),
        ({"block": 1}, "found one of 1"),
        ({"worker": 10**9}, "a worker up to 99"),
        ({"seconds": -1.0}, "times that it can have"),
        ({"wire_bytes": (10**400, 0)}, "counts and times that it can have"),
        ({"run": "bytegpt-0000000-bbbbbb"}, "found one of 'bytegpt-0000000-bbbbbb'"),
    ],
    ids=["layout", "samples", "worker", "unclaimed", "version", "block", "number", "seconds", "bytes", "run"],
)
def test_push_that_no_worker_of_the_run_may_make_is_refused_and_its_block_is_free_again(tmp_path, changes, said):
    world = World(tmp_path)
    push = world.push(0, change_of(0))
    key = world.objects.keys.push(0)
    world.store.put(key, seal(replace(push, **changes), world.objects.key))
    pushes, refused = inbox_of(world).read(0)
    assert pushes == []
    assert said in refused[0]
    assert world.store.get(key) is None


@pytest.mark.row("PS3")
def test_push_of_another_key_is_refused(tmp_path):
    world = World(tmp_path)
    push = world.push(0, change_of(0))
    world.store.put(world.objects.keys.push(0), seal(push, b"x" * 32))
    assert "signed by key" in inbox_of(world).read(0)[1][0]
    world.store.put(world.objects.keys.push(0), b"{}")
    assert inbox_of(world).read(0)[0] == []


@pytest.mark.row("PS3")
def test_push_that_is_larger_than_any_document_is_refused_and_not_read(tmp_path, monkeypatch):
    world = World(tmp_path)
    world.push(0, change_of(0))
    world.store.put(world.objects.keys.push(0), bytes(100_000))
    store = CountingStore(world.store)
    monkeypatch.setattr(layout, "MOST_DOCUMENT_BYTES", 1000)
    inbox = PushInbox(world.over(store), shards=len(world.shards), blocks=world.blocks)
    assert "wanted at most" in inbox.read(0)[1][0]
    assert store.most < 2000


@pytest.mark.row("PS3")
def test_objects_with_other_names_are_left_out(tmp_path):
    world = World(tmp_path, quorum=1)
    keys = world.objects.keys
    for prefix in (keys.pushes, keys.claims, keys.files(0)):
        world.store.put(f"{prefix}zebra.json", b"{}")
    push = world.push(0, change_of(0))
    assert inbox_of(world).read(0) == ([push], {})
    exchange = exchange_of(world)
    exchange.once()
    assert exchange.take_block() == 1
    merger = world.merger()
    merger.add(push)
    assert merger.merge().pushes == (push,)


@pytest.mark.row("PS3")
@pytest.mark.parametrize(("changes", "said"), [({"run": "another"}, "of 'another'"), ({"shard": 1}, "that of 1")])
def test_head_of_another_run_or_shard_is_refused_by_a_server(tmp_path, changes, said):
    world = World(tmp_path)
    key = world.objects.keys.head(0)
    head, _ = world.objects.read(Head, key)
    world.store.put(key, seal(replace(head, **changes), world.objects.key))
    with pytest.raises(IntegrityError, match=said):
        world.merger()


@pytest.mark.row("PS3")
def test_merge_whose_weights_are_not_finite_moves_no_head(tmp_path):
    world = World(tmp_path, quorum=1)
    merger = world.merger()
    merger.add(world.push(0, torch.full((12,), 3.4e38)))
    with pytest.raises(NonFiniteError, match="not finite after the merge of blocks 0"):
        merger.merge()
    assert world.merger().head.version == 0


def exchange_of(world):
    found = StoreExchange(world.objects, world.workers[0], life="1")
    found.open(world.layout, START)
    return found


@pytest.mark.row("PS3")
def test_head_that_goes_backwards_is_refused_by_a_worker(tmp_path):
    world = World(tmp_path, quorum=1)
    key = world.objects.keys.head(0)
    before = world.store.get(key).data
    merger = world.merger()
    merger.add(world.push(0, change_of(0)))
    merger.merge()
    exchange = exchange_of(world)
    exchange.once()
    world.store.put(key, before)
    with pytest.raises(IntegrityError, match="wanted version 1 or later, found 0"):
        exchange.once()


@pytest.mark.row("PS3")
def test_weights_that_were_changed_are_refused_by_a_worker(tmp_path):
    world = World(tmp_path)
    head, _ = world.objects.read(Head, world.objects.keys.head(0))
    world.store.put(world.objects.keys.weights(0, head.file), pack({"weights": torch.zeros(4)}))
    with pytest.raises(IntegrityError, match="it was changed"):
        exchange_of(world).once()


def test_worker_of_another_model_is_refused(tmp_path):
    world = World(tmp_path)
    other = replace(world.layout, buffers=(TensorPlace(name="m", shape=(1, 2)),))
    with pytest.raises(ConfigError, match="worker 1: wanted tensors"):
        StoreExchange(world.objects, world.workers[0], life="1").open(other, START)


@pytest.mark.row("PS3")
@given(data=st.data(), kind=st.sampled_from(KINDS), size=st.integers(1, 600))
def test_bytes_of_a_change_decode_to_finite_numbers_of_its_size_or_are_refused(data, kind, size):
    codec = ChangeCodec(Compression(kind=kind, ratio=0.1), size)
    honest = pack(codec.encode(torch.linspace(-1, 1, size)))
    assert len(honest) == file_bytes(codec.form)
    place = data.draw(st.integers(0, len(honest) - 1))
    spoilt = honest[:place] + data.draw(st.binary(min_size=1, max_size=9)) + honest[place + 1 :]
    try:
        change = codec.decode(unpack(spoilt, codec.form))
    except IntegrityError:
        return
    assert change.shape == (size,)
    assert bool(torch.isfinite(change).all())


@given(data=st.binary(max_size=300))
def test_bytes_that_are_no_file_are_refused(data):
    with pytest.raises(IntegrityError):
        unpack(data, ChangeCodec(Compression(), 5).form)


def test_claims_of_two_runs_are_not_mixed(tmp_path):
    world = World(tmp_path)
    key = world.objects.keys.claim(0, 1)
    world.store.put(key, seal(Claim(run="another", worker=1, life="0"), world.objects.key))
    with pytest.raises(IntegrityError, match="found one of 'another'"):
        world.objects.read(Claim, key)
