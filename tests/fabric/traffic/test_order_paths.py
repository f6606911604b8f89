"""Edges of rings over servers, against rank groups that are written out one by one."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangline.fabric.topology.inventory import Fabric, Group
from gangline.fabric.traffic.order_paths import OrderPaths, RingTraffic
from gangline.fabric.traffic.paths import path_load

POWERS = (1, 2, 4, 8)


def fabric_of(sizes, **known):
    groups = tuple(
        Group(name=f"g{at}", servers=tuple(f"g{at}s{server}" for server in range(size)))
        for at, size in enumerate(sizes)
    )
    return Fabric(groups=groups, rails=4, path_policy="hash", **known)


def edges_of_ranks(group_of_server, *, ranks, stride, local):
    """Of every ring of ranks, each of which leaves a server by one NIC for each member there; of one rail."""
    world = len(group_of_server) * local
    crossing = Counter()
    for start in range(0, world, ranks * stride):
        for offset in range(stride):
            ring = [start + offset + place * stride for place in range(ranks)]
            for rank, following in zip(ring, ring[1:] + ring[:1], strict=True):
                here, there = group_of_server[rank // local], group_of_server[following // local]
                crossing[here] += here != there
    return crossing


@given(
    sizes=st.lists(st.integers(1, 6), min_size=1, max_size=4), ranks=st.sampled_from(POWERS),
    stride=st.sampled_from(POWERS),
)  # fmt: skip
def test_flows_are_those_of_the_rings_of_all_ranks(sizes, ranks, stride):
    """A ring has one edge between two servers for all its members there, which take turns on their NICs."""
    local = 4
    groups = [at for at, size in enumerate(sizes) for _ in range(size)]
    groups = groups[: len(groups) - len(groups) % max(1, ranks * stride // local)]
    paths = OrderPaths(fabric_of(sizes, leaf_uplinks=4), groups, local)
    ring = RingTraffic(wire_bytes=1.0, ranks=ranks, rank_stride=stride)
    if not ring.crosses(local):
        assert ring.rail_bytes(local) == paths.crossings(ranks, stride) == 0
        return
    rings_on_a_server = local // ring.members(local)
    counted = edges_of_ranks(groups, ranks=ranks, stride=stride, local=local)
    assert paths.crossings(ranks, stride) == counted.total() / rings_on_a_server
    flows = [count // rings_on_a_server for count in counted.values() if count]
    expected = path_load("hash", sorted(flows), uplinks=4).efficiency if flows else 1.0
    assert paths.load(ranks, stride).efficiency == pytest.approx(expected)


def test_replicas_of_shards_share_uplinks_and_one_ring_does_not():
    fabric = fabric_of([8, 8], leaf_uplinks=1)
    paths = OrderPaths(fabric, [0] * 8 + [1] * 8, 4)
    assert paths.load(64, 1).efficiency == 1.0, "a ring leaves a group once"
    assert paths.load(2, 32).efficiency == 1 / 8, "eight rings of two replicas"


def test_uplinks_that_are_not_known_have_no_load():
    assert OrderPaths(fabric_of([2, 2]), [0, 0, 1, 1], 4).load(16, 1) is None
