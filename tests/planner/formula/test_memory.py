"""Memory by formula, against published and tracked figures, a list of tensors, and a simulation of each schedule."""

from dataclasses import replace
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.planner.formula.reference import EIGHT, KINDS, R1

from gangline.planner.formula.memory import rank_memory, stages_of, state_memory, token_costs
from gangline.planner.layouts.bubble import accepts_micro_batches, bubble, most_live
from gangline.planner.layouts.layout import WrappedLayout
from gangline.spec.mesh import Mesh
from gangline.spec.plan import PipelineSchedule
from gangline.spec.transformer import Transformer

PLAIN = Transformer(layers=2, width=512, heads=8, feed_width=2048, vocabulary=1000, sequence=64, gated=False)


def memory(kind, shards, *, precision="bf16", recompute="none", sync="each", **more):
    load = stages_of(EIGHT, 1, "1f1b").loads(1)[0]
    layout = WrappedLayout.of(mesh=Mesh(dp_shard=shards), wrapping=KINDS[kind])
    options = {"micro_batch": 1, "loss_chunks": 1} | more
    return rank_memory(replace(R1, precision=precision), layout, load, sync=sync, recompute=recompute, **options)


def test_a_plain_block_keeps_32_bytes_a_token_and_width():
    """Korthikanti et al. 2022: 34 with dropout, whose masks are 2."""
    assert token_costs(PLAIN).kept_bytes["none"] == 32 * 512
    assert token_costs(PLAIN).kept("every_1") == token_costs(PLAIN).kept_bytes["full"]


@pytest.mark.parametrize(
    ("kind", "recompute", "gigabytes"), [("zero3", "full", 8.93), ("zero2", "full", 24.99), ("zero3", "none", 29.9)]
)
def test_one_sequence_of_8b_on_256_ranks(kind, recompute, gigabytes):
    """A tracker of fake tensors sees 9.0, 25.0 and, of operators that are not fused, 38.0 GB."""
    assert memory(kind, 256, recompute=recompute).total / 1e9 == pytest.approx(gigabytes, abs=0.05)


@pytest.mark.parametrize(
    ("kind", "ranks", "share"),
    [("zero1", 2, 0.75), ("zero1", 4, 0.625), ("zero2", 2, 0.5), ("zero3", 4, 0.25), ("replicate", 4, 1.0)],
)
def test_state_over_that_of_copies_in_float32(kind, ranks, share):
    """Measured on gloo ranks: 0.751, 0.627, 0.500, 0.250; what zero2 gathers is no state."""
    mesh = Mesh(dp_shard=ranks) if kind in ("zero2", "zero3") else Mesh(dp_replicate=ranks)
    question = replace(R1, precision="fp32")
    weights, *others = state_memory(question, WrappedLayout.of(mesh, KINDS[kind]), 1e6, sync="each")
    gathered = 4e6 if kind == "zero2" else 0
    assert (weights - gathered + sum(others)) / 16e6 == pytest.approx(share)


def test_parameters_are_those_of_every_tensor():
    h, keys, f, words = 4096, 1024, 14_336, 128_256
    block = [(h, h), (keys, h), (keys, h), (h, h), (f, h), (f, h), (h, f), (h, 1), (h, 1)]
    whole = 32 * sum(rows * columns for rows, columns in block) + 2 * words * h + h
    assert EIGHT.parameters == whole == 8_030_261_248


@given(
    kind=st.sampled_from(["zero2", "zero3"]), shards=st.sampled_from([2, 4, 8, 64]), micro_batch=st.integers(1, 8),
    recompute=st.sampled_from(["none", "selective", "full"]), sync=st.sampled_from(["each", "last"]),
)  # fmt: skip
def test_more_shards_never_need_more(kind, shards, micro_batch, recompute, sync):
    options = {"micro_batch": micro_batch, "recompute": recompute, "sync": sync}
    assert memory(kind, 2 * shards, **options).total <= memory(kind, shards, **options).total
    assert memory("zero3", shards, **options).total <= memory("zero2", shards, **options).total
    assert memory(kind, shards, **options | {"sync": "each"}).total <= memory(kind, shards, **options).total


@given(kind=st.sampled_from(["replicate", "zero3"]), micro_batch=st.integers(1, 16), chunks=st.sampled_from([1, 8]))
def test_what_is_computed_again_is_not_kept(kind, micro_batch, chunks):
    options = {"micro_batch": micro_batch, "loss_chunks": chunks}
    none, selective, full = (
        memory(kind, 8, recompute=word, **options).activations for word in ("none", "selective", "full")
    )
    assert full <= selective <= none
    assert memory(kind, 8, **options | {"loss_chunks": 2 * chunks}).total <= memory(kind, 8, **options).total


@pytest.mark.parametrize("schedule", get_args(PipelineSchedule))
@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_most_live_are_those_of_the_simulation(schedule, ranks):
    for count in (2 * ranks, 4 * ranks):
        assert accepts_micro_batches(schedule, ranks, count)
        played = bubble(schedule, ranks, count).live
        assert tuple(most_live(schedule, ranks, rank, count) for rank in range(ranks)) == played


def test_float32_casts_nothing_and_keeps_twice_as_much():
    half, whole = memory("replicate", 1, precision="bf16"), memory("replicate", 1, precision="fp32")
    assert whole.weights == 4 * EIGHT.parameters
    assert half.weights == 6 * EIGHT.parameters
    assert whole.activations == 2 * half.activations
