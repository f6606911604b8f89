"""Step time by formula, against a ring walked hop by hop and the simulation of each schedule."""

from dataclasses import replace
from math import inf
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.planner.formula.reference import A100, EIGHT, KINDS, LINKS, R1

from gangline.planner.cost.exchange import LinkRates
from gangline.planner.formula.inputs import Hardware
from gangline.planner.formula.memory import stage_blocks, stage_parameters, stages_of, token_costs
from gangline.planner.formula.step_time import exchange_seconds, passes
from gangline.planner.layouts.bubble import bubble, bubble_share
from gangline.planner.layouts.layout import WrappedLayout
from gangline.spec.mesh import Mesh
from gangline.spec.plan import PipelineSchedule

UNIT = Hardware(flops_per_second=1.0, memory_bytes_per_second=1.0, links=LinkRates(node=64, inside=1.0, across=1.0))
"""On which seconds are bytes."""


def exchanged(kind, mesh, hardware, *, blocks, micro_batches, parameters=1e9, sync="last", **changes):
    """Seconds that data-parallel ranks of a layout exchange on this hardware."""
    question = replace(R1, hardware=hardware, **changes)
    layout, load = WrappedLayout.of(mesh, KINDS[kind]), question.load(1, micro_batches, sync)
    return exchange_seconds(question, layout, parameters, load, blocks=blocks)


def ring_bytes(kind: str, ranks: int, size: int) -> int:
    """That one rank sends, piece by piece round the ring, of a tensor of `size` that the ranks divide."""
    piece = size // ranks
    rounds = {"all_gather": 1, "reduce_scatter": 1, "all_reduce": 2}[kind]
    return sum(piece for _ in range(rounds) for _ in range(ranks - 1))


@pytest.mark.parametrize("sync", ["each", "last"])
@pytest.mark.parametrize(("ranks", "count"), [(2, 1), (4, 1), (4, 3), (8, 16)])
def test_bytes_of_a_step_are_those_of_its_rings(sync, ranks, count):
    parameters = 1680

    def sent(kind, mesh):
        return exchanged(kind, mesh, UNIT, blocks=1, sync=sync, micro_batches=count, parameters=parameters)

    gathered, reduced = (
        ring_bytes("all_gather", ranks, 2 * parameters),
        ring_bytes("reduce_scatter", ranks, 4 * parameters),
    )
    times = count if sync == "each" else 1
    copies, shards = Mesh(dp_replicate=ranks), Mesh(dp_shard=ranks)
    assert sent("replicate", copies) == pytest.approx(ring_bytes("all_reduce", ranks, 4 * parameters))
    assert sent("zero1", copies) == pytest.approx(
        ring_bytes("all_reduce", ranks, 4 * parameters) + ring_bytes("all_gather", ranks, 4 * parameters)
    )
    assert sent("zero2", shards) == pytest.approx(gathered + times * reduced)
    assert sent("zero3", shards) == pytest.approx(2 * count * gathered + times * reduced)
    hybrid = sent("zero3", Mesh(dp_replicate=2, dp_shard=ranks))
    assert hybrid == pytest.approx(
        2 * count * gathered + times * reduced + ring_bytes("all_reduce", 2, 4 * parameters // ranks)
    )


@pytest.mark.parametrize("schedule", get_args(PipelineSchedule))
@pytest.mark.parametrize(("ranks", "count"), [(2, 4), (4, 8), (8, 16), (8, 32)])
def test_the_bubble_is_that_of_the_simulation(schedule, ranks, count):
    assert bubble_share(schedule, ranks, count) == pytest.approx(bubble(schedule, ranks, count).bubble, abs=1e-9)


@given(
    layers=st.integers(2, 40), ranks=st.integers(2, 8), count=st.integers(8, 40), words=st.sampled_from([1000, 128_256])
)
def test_a_step_of_unlike_stages_takes_at_most_what_the_formula_says(layers, ranks, count, words):
    """Of like ones exactly that; else early stages run ahead of the slowest, which the formula does not see."""
    if ranks > layers:
        return
    model = replace(EIGHT, layers=layers, vocabulary=words)
    stages = stages_of(model, ranks, "1f1b")
    layout = WrappedLayout.of(mesh=Mesh(pp=ranks), wrapping=KINDS["replicate"])
    hardware = replace(A100, links=LinkRates(node=8, inside=1e30, across=1e30))
    question = replace(R1, model=model, hardware=hardware)
    parts = passes(question, layout, stages, micro_batch=1, micro_batches=count, recompute="none")
    one = passes(
        question, WrappedLayout.of(mesh=Mesh(), wrapping=KINDS["replicate"]), stages_of(model, 1, "1f1b"),
        micro_batch=1, micro_batches=1, recompute="none",
    ).compute  # fmt: skip
    head = one - one * layers / (layers + token_costs(model).head_blocks)
    block = (one - head) / layers
    weights = tuple(n * block + (stage == ranks - 1) * head for stage, n in enumerate(stages.blocks))
    played = bubble("1f1b", ranks, count, weights=weights).seconds * weights[0] / 3
    by_formula = parts.compute + parts.bubble
    assert count * max(weights) <= played * (1 + 1e-9)
    assert played <= by_formula * (1 + 1e-9) <= (played + (ranks - 1) * max(weights)) * (1 + 1e-9)
    if max(weights) - min(weights) < 1e-3 * max(weights):
        assert by_formula == pytest.approx(played, rel=1e-3)


@given(layers=st.integers(1, 12), stages=st.integers(1, 6), head=st.floats(0, 6))
def test_no_division_has_a_faster_slowest_stage(layers, stages, head):
    if stages > layers:
        return

    def slowest(blocks):
        return max(count + head * (place == stages - 1) for place, count in enumerate(blocks))

    found = stage_blocks(layers, stages, head)
    assert sum(found) == layers
    assert len(found) == stages
    assert min(found) >= 1
    assert slowest(found) == pytest.approx(min(slowest(each) for each in _divisions(layers, stages)))


def _divisions(layers, stages):
    if stages == 1:
        return [(layers,)]
    return [
        (first, *rest) for first in range(1, layers - stages + 2) for rest in _divisions(layers - first, stages - 1)
    ]


def test_stages_have_all_parameters_and_a_tied_head_is_copied():
    blocks = stage_blocks(32, 4, 2.2)
    assert sum(stage_parameters(EIGHT, blocks)) == EIGHT.parameters
    tied = replace(EIGHT, tied=True)
    assert stage_parameters(tied, (32,)) == (tied.parameters,)
    assert sum(stage_parameters(tied, blocks)) == tied.parameters + tied.embedding_parameters


@given(faster=st.floats(1.0, 8.0), layout=st.sampled_from([(1, 1), (2, 1), (1, 2), (8, 1)]))
def test_a_faster_link_is_never_worse(faster, layout):
    tp, pp = layout
    links = replace(LINKS, inside=LINKS.inside * faster, across=LINKS.across * faster)
    mesh = Mesh(tp=tp, pp=pp, dp_shard=16 // tp // pp)
    times = []
    for each in (A100, replace(A100, links=links)):
        stages = stages_of(EIGHT, pp, "1f1b")
        parts = passes(
            replace(R1, hardware=each), WrappedLayout.of(mesh=mesh, wrapping=KINDS["zero3"]), stages, micro_batch=1,
            micro_batches=16, recompute="full",
        )  # fmt: skip
        times.append(parts.total + exchanged("zero3", mesh, each, blocks=32, micro_batches=16))
    assert times[1] <= times[0]


WAITING = Hardware(
    flops_per_second=inf, memory_bytes_per_second=inf,
    links=LinkRates(node=8, inside=inf, across=inf, inside_latency=1.0, across_latency=1000.0),
)  # fmt: skip
"""On which seconds are messages that follow each other: inside a server, thousands between servers."""


@pytest.mark.parametrize(("recompute", "reduces", "forwards"), [("none", 4, 1), ("full", 6, 2)])
def test_each_message_of_a_pass_waits_its_latency(recompute, reduces, forwards):
    """32 blocks, 4 micro-batches: all-reduces of tp 2 wait 2 messages, rows of ep 4 go 3 peers far, keys of cp 2 go to
    one peer three times, a stage hands on and gets back."""
    model, run = replace(EIGHT, experts=4, active_experts=2), {"micro_batch": 1, "micro_batches": 4}

    def waits(**degrees):
        mesh = Mesh(**degrees)
        stages, layout = stages_of(model, mesh.pp, "1f1b"), WrappedLayout.of(mesh=mesh, wrapping=KINDS["zero3"])
        return passes(replace(R1, model=model, hardware=WAITING), layout, stages, recompute=recompute, **run)

    assert waits(tp=2).tensor == 4 * 32 * reduces * 2
    assert waits(cp=2, dp_shard=4).context == 4 * 32 * 3
    assert waits(ep=4, dp_shard=4).experts == 4 * 32 * (reduces + forwards) * 3
    assert waits(pp=2, dp_shard=8).stages == 4 * 2 * 1000


def test_each_message_of_an_exchange_waits_its_latency():
    """Of 32 blocks and what is around them, on 16 ranks of two servers: 15 messages round the ring, 30 for a sum."""
    parameters = 10 * 25 * 2**20 / 4  # ten buckets

    def waits(kind, mesh, sync):
        seconds = exchanged(kind, mesh, WAITING, blocks=32, micro_batches=4, parameters=parameters, sync=sync)
        return seconds / 1000

    copies, shards = Mesh(dp_replicate=16), Mesh(dp_shard=16)
    assert waits("replicate", copies, sync="last") == 10 * 30
    assert waits("zero1", copies, sync="last") == 10 * 30 + 15
    assert waits("zero2", shards, sync="last") == (1 + 1) * 33 * 15
    assert waits("zero3", shards, sync="last") == (2 * 4 + 1) * 33 * 15
    assert waits("zero3", shards, sync="each") == (2 * 4 + 4) * 33 * 15
    inside = (2 * 4 + 1) * 33 * 7 / 1000
    assert waits("zero3", Mesh(dp_replicate=2, dp_shard=8), sync="last") == pytest.approx(inside + 2 * 2)


def test_buckets_are_of_the_size_that_the_line_gives_and_only_those_of_ddp():
    parameters = 10 * 25 * 2**20 / 4
    how = {"blocks": 32, "micro_batches": 4, "parameters": parameters}

    def waits(kind, mesh):
        found = [exchanged(kind, mesh, WAITING, bucket_bytes=each, **how) / 1000 for each in (None, 2**20)]
        return found[1] - found[0]

    assert waits("replicate", Mesh(dp_replicate=16)) == waits("zero1", Mesh(dp_replicate=16)) == (250 - 10) * 30
    assert waits("zero3", Mesh(dp_replicate=2, dp_shard=8)) == 0


def test_what_is_not_known_takes_for_ever():
    lost = replace(A100, links=LinkRates(node=8, inside=None, across=None))
    assert exchanged("zero3", Mesh(dp_shard=16), lost, blocks=1, micro_batches=1) == float("inf")
