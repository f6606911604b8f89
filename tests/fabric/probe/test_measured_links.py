"""Measured speeds: their median, what the prober cannot tell from the network, and what a fabric becomes with them."""

from dataclasses import replace
from itertools import permutations

import pytest

from gangline.errors import CapacityError
from gangline.fabric.probe.measured_links import (
    LinkMeasurement,
    link_measurement,
    links_words,
    with_measured_links,
    with_speeds,
)
from gangline.fabric.topology.inventory import Fabric, Group
from gangline.spec.measurements import GroupEdges, RankOrder

FABRIC = Fabric(
    groups=(Group(name="g1", servers=("a", "b")), Group(name="g2", servers=("c", "d"))), nic_bytes_per_second=50e9
)
GROUPS = {"a": "g1", "b": "g1", "c": "g2", "d": "g2"}


def measured(speed=1.2e9, *, own=5e9, names="abcd"):
    speeds = {pair: (1 + (GROUPS[pair[0]] == GROUPS[pair[1]])) * speed for pair in permutations(names, 2)}
    alone = {(name, name): own for name in names}
    return link_measurement(speeds, alone, groups=GROUPS, date="2026-11-26T10:00:00Z", seconds=1.0)


def test_plans_count_with_the_median_and_keep_groups_servers_and_date():
    found = measured()
    assert (found.bytes_per_second, found.num_pairs, found.servers) == (1.2e9, 12, ("a", "b", "c", "d"))
    across = {(each.source, each.target): each.bytes_per_second for each in found.groups}
    assert across[("g1", "g1")] == 2.4e9
    assert across[("g1", "g2")] == 1.2e9
    assert LinkMeasurement.from_json(found.to_json()) == found
    network = with_measured_links(FABRIC, found)
    assert network.nic_bytes_per_second * network.nic_bus_efficiency == 1.2e9
    assert (
        links_words(FABRIC, found) == "measured 1.2 GB/s on 2026-11-26 over one TCP connection, 12 pairs of 4 servers"
    )


def test_what_is_as_fast_as_the_prober_itself_is_not_a_property_of_the_network():
    fast = measured(3e9)
    assert with_measured_links(FABRIC, fast) == FABRIC
    assert links_words(FABRIC, fast).startswith("assumed; measured at least 3.0 GB/s")


def test_other_servers_and_no_measurement_leave_what_is_stated():
    other = replace(measured(), servers=("a", "z"))
    assert with_measured_links(FABRIC, other) == with_measured_links(FABRIC, None) == FABRIC
    assert links_words(FABRIC, other).endswith("of others than it names")
    assert links_words(FABRIC, None) == "assumed, as fabric.toml states them"


def test_no_answers_are_refused():
    with pytest.raises(CapacityError, match="found 0 and 0"):
        link_measurement({("a", "b"): 0.0}, {}, groups={}, date="", seconds=1.0)


def test_speeds_between_groups_go_to_the_edges_of_a_gang():
    order = RankOrder(edges=(GroupEdges(source="east/g1", target="east/g2", edges=1),))
    (edge,) = with_speeds(order, measured()).edges
    assert edge.bytes_per_second == 1.2e9
    assert with_speeds(order, None) == order
