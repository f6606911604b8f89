"""Messages over links whose bandwidth a site gives: inside a server, and across in rings of all its members."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.planner.cases import gpus, step_load_of
from tests.planner.transformers import H100, ONE, transformer

from gangline.planner.cost.exchange import Collective
from gangline.planner.cost.speeds import speeds_of
from gangline.planner.cost.traffic import collectives
from gangline.planner.layouts.layout import Layout
from gangline.planner.pool import open_pool
from gangline.spec.mesh import Mesh

MODEL = transformer(**ONE, sequence=4096)
BYTES = 1e9


def seconds(kind="all_reduce", *, ranks, rank_stride=1, peers=0, node=8, site=H100):
    speeds = speeds_of(open_pool(site, gpus(8, 4)), "bf16", MODEL.traces[0], None, world_size=4 * node)
    message = {"part": "communication", "kind": kind, "size_bytes": BYTES, "count": 1}
    return speeds.exchange_seconds(Collective(ranks=ranks, rank_stride=rank_stride, peers=peers, **message))


def test_inside_a_server_a_ring_has_its_links():
    assert seconds(ranks=8) == pytest.approx(2 * 7 / 8 * BYTES / 300e9)
    assert seconds("all_gather", ranks=4, rank_stride=2) == pytest.approx(3 / 4 * BYTES / 300e9)


def test_across_servers_a_ring_has_the_network_of_its_members_there_and_no_more_than_inside():
    assert seconds("all_gather", ranks=16) == pytest.approx(15 / 16 * BYTES / 300e9), "8 x 40 is more"
    assert seconds("all_gather", ranks=8, rank_stride=4) == pytest.approx(7 / 8 * BYTES / 80e9), (
        "two of them in a server"
    )
    assert seconds("all_gather", ranks=4, rank_stride=8) == pytest.approx(3 / 4 * BYTES / 40e9), "one"


def test_each_message_waits_the_latency_of_its_slowest_link():
    table = replace(H100.gpu["h100"], link_latency_seconds=1.0, network_latency_seconds=100.0)
    waits = replace(H100, gpu={"h100": table})
    for kind, ranks, how, steps in (
        ("all_reduce", 8, {}, 14), ("all_gather", 16, {}, 1500), ("all_reduce", 4, {"rank_stride": 8}, 600),
        ("send", 2, {"rank_stride": 8, "peers": 4}, 100),
    ):  # fmt: skip
        extra = seconds(kind, ranks=ranks, site=waits, **how) - seconds(kind, ranks=ranks, **how)
        assert extra == pytest.approx(steps)


def test_a_stage_hands_on_over_one_link_and_the_slowest_one_counts():
    assert seconds("send", ranks=2, rank_stride=2, peers=4) == pytest.approx(BYTES / 300e9)
    assert seconds("send", ranks=2, rank_stride=4, peers=4) == pytest.approx(BYTES / 40e9)


def test_a_link_that_is_not_given_has_no_time():
    inside = replace(H100, gpu={"h100": replace(H100.gpu["h100"], network_bytes_per_second=None)})
    assert seconds(ranks=8, site=inside) is not None
    assert seconds(ranks=16, site=inside) is None


@pytest.mark.parametrize(
    ("shape", "spans"),
    [
        (Layout("fsdp", Mesh(dp_shard=32)), {32}),
        (Layout("hsdp", Mesh(dp_replicate=4, dp_shard=8)), {8, 32}),
        (Layout("tp", Mesh(dp_shard=4, tp=8)), {8, 32}),
        (Layout("pp", Mesh(pp=4, dp_shard=8)), {8, 32}),
        (Layout("cp", Mesh(dp_shard=8, cp=4)), {4, 32}),
        (Layout("3d", Mesh(pp=2, dp_shard=8, tp=2)), {2, 16, 32}),
    ],
    ids=lambda each: each.name if isinstance(each, Layout) else "",
)
def test_messages_span_the_ranks_of_their_axis(shape, spans):
    load = step_load_of(micro_batch=1, micro_batches=8, precision="bf16")
    assert {each.span for each in collectives(MODEL, shape, load)} == spans


@given(ranks=st.sampled_from([2, 4, 8, 16, 32]), rank_stride=st.sampled_from([1, 2, 4, 8]), factor=st.floats(1, 100))
def test_a_faster_network_is_never_worse(ranks, rank_stride, factor):
    gpu = H100.gpu["h100"]
    faster = replace(gpu, network_bytes_per_second=gpu.network_bytes_per_second * factor)
    assert seconds(ranks=ranks, rank_stride=rank_stride, site=replace(H100, gpu={"h100": faster})) <= seconds(
        ranks=ranks, rank_stride=rank_stride
    )
