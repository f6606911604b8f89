"""Rings against all orders of a few hosts."""

from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gangline.errors import ConfigError
from gangline.fabric.topology.inventory import Fabric, Group
from gangline.fabric.traffic.rings import (
    crossing_flows,
    fewest_crossings,
    random_crossings,
    ring_crossings,
    ring_order,
)


def fabric_of(*sizes, blocks=None):
    blocks = blocks or [""] * len(sizes)
    return Fabric(
        groups=tuple(
            Group(name=f"g{at}", servers=tuple(f"{'abcdefgh'[at]}{i}" for i in range(size)), block=block)
            for at, (size, block) in enumerate(zip(sizes, blocks, strict=True))
        )
    )


def groups_of(fabric):
    return {server: group.name for server, group in fabric.by_server.items()}


@pytest.mark.parametrize("sizes", [(2, 2), (3,), (1, 2, 3), (4, 3), (2, 2, 2)])
def test_no_order_of_all_has_fewer_crossings(sizes):
    fabric = fabric_of(*sizes)
    names = groups_of(fabric)
    counts = [ring_crossings(order, names) for order in permutations(fabric.servers)]
    ours = ring_crossings(ring_order(fabric, fabric.servers), names)
    assert ours == min(counts) == fewest_crossings(len(sizes))
    assert random_crossings(sizes) == pytest.approx(sum(counts) / len(counts))


@settings(deadline=None)
@given(st.lists(st.integers(1, 4), min_size=1, max_size=3), st.randoms(use_true_random=False))
def test_order_inside_a_group_changes_nothing(sizes, random):
    fabric = fabric_of(*sizes)
    names = groups_of(fabric)
    order = list(ring_order(fabric, fabric.servers))
    shuffled = sorted(order, key=lambda server: (names[server], random.random()))
    assert crossing_flows(shuffled, names) == crossing_flows(order, names)


def test_servers_of_a_block_stay_together():
    fabric = fabric_of(2, 1, 2, blocks=["east", "west", "east"])
    assert ring_order(fabric, ["c1", "b0", "a1", "a0"]) == ("a0", "a1", "c1", "b0")


def test_good_and_bad_ring_of_four_gpus_on_two_switches():
    names = {"a": "s1", "b": "s1", "c": "s2", "d": "s2"}
    assert ring_crossings("abcd", names) == 2
    assert ring_crossings("acbd", names) == 4
    assert random_crossings([2, 2]) == pytest.approx(2.67, abs=5e-3)


@pytest.mark.parametrize(("servers", "groups", "crossings"), [(8, 2, (2, 4.57, 8)), (2048, 32, (32, 1985, 2048))])
def test_ours_random_and_worst(servers, groups, crossings):
    size = servers // groups
    names = {server: server % groups for server in range(servers)}
    worst = ring_crossings(range(servers), names)
    found = fewest_crossings(groups), random_crossings([size] * groups), worst
    assert found == pytest.approx(crossings, abs=0.05)


def test_bytes_between_groups_are_near_the_least():
    """Any all-reduce sends the sum of each group out once, and the total back to it: 2 (G - 1) times the tensor."""
    ours, least = fewest_crossings(32) * 2 * 2047 / 2048, 2 * (32 - 1)
    assert least <= ours <= 32 / 31 * least


def test_a_server_of_another_fabric_is_refused():
    with pytest.raises(ConfigError, match="found z9"):
        ring_order(fabric_of(2), ["a0", "z9"])
