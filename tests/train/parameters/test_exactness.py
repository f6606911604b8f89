"""Workers and servers against the same written slowly, and blending under every interleaving."""

import random

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.oracles import merging
from tests.train.parameters.objects import START, World, change_of

from gangline.spec.compression import Compression
from gangline.train.parameters.encode import ChangeCodec, file_bytes
from gangline.train.parameters.exchange import Arrival
from gangline.train.parameters.layout import BlockSet, Head, RowShard
from gangline.train.parameters.worker import BlendedWeights

RATIOS = [("int8", 0.27), ("topk", 0.03), ("bf16", 0.51)]


@pytest.mark.row("PS4")
@pytest.mark.proves("parameter_server", oracle="written slowly in one process, drawn order of arrivals", gate="1e-6")
@pytest.mark.parametrize("kind", ["none", "bf16", "int8", "topk"])
@pytest.mark.parametrize("seed", range(3))
def test_merges_in_a_drawn_order_of_arrivals_are_those_of_the_slow_version(tmp_path, reached, kind, seed):
    world = World(tmp_path, kind=kind, ratio=0.25, steps=20, quorum=1, max_age=2)
    draws = random.Random(seed)
    slow = merging.Run(START, world.shards, kind=kind, ratio=0.25, lr=0.7, decay=0.9, workers=2, max_age=2)
    mergers = [world.merger(number) for number in range(len(world.shards))]
    waiting = []
    for block in range(world.blocks.count):
        worker, version = draws.choice((1, 2)), max(0, mergers[0].head.version - draws.choice((0, 0, 1, 3)))
        change, after = change_of(100 * seed + block), change_of(-block - 1)
        slow.push(block, worker, version, change, after)
        waiting.append(world.push(block, change, worker=worker, versions=(version,) * len(world.shards), after=after))
        if draws.random() < 0.6 or block == world.blocks.count - 1:
            for merger in mergers:
                for push in waiting:
                    merger.add(push)
                merger.merge()
            slow.merge()
            waiting = []
    found = torch.cat([merger._weights for merger in mergers])  # what is to be proven
    torch.testing.assert_close(found, slow.weights, atol=1e-6, rtol=0)
    reached(float((found - slow.weights).abs().max()))
    assert sum(merger.head.dropped for merger in mergers) == slow.dropped * len(mergers)


@pytest.mark.parametrize(("kind", "most"), RATIOS)
def test_bytes_of_a_change_are_a_share_of_float32(kind, most):
    size = 2**22
    form = ChangeCodec(Compression(kind=kind, ratio=0.01), size).form
    assert file_bytes(form) / (4 * size) <= most


def head_of(version, done):
    return Head(
        run="r", shard=0, version=version, file="", weights_sha256="", state_sha256="",
        done=BlockSet().with_blocks(done),
    )  # fmt: skip


@pytest.mark.row("PS5")
@given(boundaries=st.lists(st.sets(st.integers(0, 7)), min_size=1, max_size=4))
def test_progress_between_a_push_and_its_merge_is_neither_lost_nor_doubled(boundaries):
    shard = RowShard(0, 0, 1)
    blend = BlendedWeights([shard], 1)
    blend.take({0: Arrival(head_of(0, ()), torch.tensor([1000.0]))})
    done, merged = set(), 1000.0
    for block, newly in enumerate(boundaries):
        blend.push(block, torch.tensor([2.0**block]))
        own = {each for each in newly if each <= block} | done
        merged += sum(2.0**each for each in own - done) - 0.5 * len(own - done)  # a merge takes a part of the progress
        done = own
        blend.take({0: Arrival(head_of(block + 1, done), torch.tensor([merged]))})
        pending = sum(2.0**each for each in range(block + 1) if each not in done)
        assert float(blend.weights()) == merged + pending


@given(blocks=st.lists(st.integers(0, 40), max_size=60))
def test_set_of_blocks_is_a_set(blocks):
    found = BlockSet()
    for block in blocks:
        found = found.with_blocks([block])
    assert {block for block in range(50) if block in found} == set(blocks)
    assert found.count == len(set(blocks))
    assert found.mark not in found
