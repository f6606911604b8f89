"""Order of servers that Slurm chose, by the groups of the stated network."""

import itertools

import pytest

from gangline.fabric.placement.order import order_servers
from gangline.fabric.topology.inventory import Group
from gangline.spec.gang.podset import PipelineTraffic

GROUPS = (
    Group(name="g1", servers=("a1", "a2", "a10")),
    Group(name="g2", servers=("b1", "b2", "b3", "b4")),
    Group(name="g3", servers=("c1", "c2"), block="east"),
)


def names(servers, **more):
    return [each.name for each in order_servers(servers, GROUPS, **more)]


@pytest.mark.parametrize("servers", [*itertools.permutations(("b2", "a10", "a2", "b1"))])
def test_groups_are_contiguous_in_whatever_order_slurm_lists_the_servers(servers):
    assert names(servers) == ["a2", "a10", "b1", "b2"]


def test_every_server_has_its_place_once_and_knows_its_group():
    found = order_servers(("c1", "b1", "a1"), GROUPS)
    assert [(each.name, each.group, each.block) for each in found] == [
        ("a1", "g1", ""), ("b1", "g2", ""), ("c1", "g3", "east"),
    ]  # fmt: skip


def test_servers_of_no_group_come_last_as_they_were():
    assert names(("z9", "b1", "z1", "a1")) == ["a1", "b1", "z9", "z1"]
    assert names(("z9", "z1")) == ["z9", "z1"]


def test_choice_that_allows_no_tile_is_ordered_without():
    assert names(("a1", "b1", "b2", "b3"), tile=2) == ["a1", "b1", "b2", "b3"]
    assert names(("b1", "a1", "b2", "a2"), tile=2) == ["a1", "a2", "b1", "b2"]


def test_pipeline_orders_by_what_it_sends():
    light = PipelineTraffic(stages=2, data_edge_bytes=1.0, stage_edge_bytes=1e9)
    assert [name[0] for name in names(("a1", "a2", "b1", "b2"), pipeline=light)] == ["a", "b", "a", "b"]


def test_without_a_network_the_order_is_slurms():
    assert [each.name for each in order_servers(("n2", "n1"), ())] == ["n2", "n1"]
