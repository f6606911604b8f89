"""Order of servers that Slurm chose, by the groups of the stated network, and of those of a pipeline by its traffic."""

import itertools
from itertools import permutations

import pytest

from gangline.fabric.placement.mapping import EdgeBytes, bytes_between
from gangline.fabric.placement.order import order_servers, pipeline_order
from gangline.fabric.topology.inventory import Group
from gangline.spec.gang.podset import PipelineTraffic, PlacedServer

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


def servers_of(**counts):
    return [PlacedServer(name=f"{group}{at}", group=group) for group, count in counts.items() for at in range(count)]


def between(servers, traffic):
    replicas = len(servers) // traffic.stages
    groups = [server.group for server in servers]
    rows = [groups[start : start + replicas] for start in range(0, len(groups), replicas)]
    return bytes_between(rows, EdgeBytes(data=traffic.data_edge_bytes, stage=traffic.stage_edge_bytes))


@pytest.mark.parametrize(("data", "stage"), [(10.0, 1.0), (1.0, 10.0), (1.0, 0.1), (0.1, 1.0)])
@pytest.mark.parametrize("counts", [{"a": 4, "b": 4}, {"a": 5, "b": 3}, {"a": 2, "b": 2, "c": 2, "d": 2}])
def test_no_order_of_these_servers_sends_less_between_groups(counts, data, stage):
    traffic = PipelineTraffic(stages=2, data_edge_bytes=data, stage_edge_bytes=stage)
    servers = servers_of(**counts)
    found = pipeline_order(servers, traffic)
    assert sorted(each.name for each in found) == sorted(each.name for each in servers)
    orders = set(permutations([each.group for each in servers]))
    named = ([PlacedServer(name="", group=group) for group in order] for order in orders)
    assert between(found, traffic) == pytest.approx(min(between(order, traffic) for order in named))


def test_replicas_that_talk_more_than_stages_stay_in_a_group_and_the_reverse():
    servers = servers_of(a=4, b=4)
    by_stage = pipeline_order(servers, PipelineTraffic(stages=2, data_edge_bytes=10, stage_edge_bytes=1))
    assert [each.group for each in by_stage] == list("aaaabbbb")
    by_replica = pipeline_order(servers, PipelineTraffic(stages=2, data_edge_bytes=1, stage_edge_bytes=10))
    assert [each.group for each in by_replica[:4]] == [each.group for each in by_replica[4:]]


def test_pods_of_a_tile_stay_together():
    servers = servers_of(a=4, b=4)
    found = pipeline_order(servers, PipelineTraffic(stages=2, data_edge_bytes=1, stage_edge_bytes=10), tile=2)
    pairs = [found[at : at + 2] for at in range(0, 8, 2)]
    assert all(one.group == other.group for one, other in pairs)
    assert [pair[0].group for pair in pairs[:2]] == [pair[0].group for pair in pairs[2:]]


def test_servers_that_share_experts_stay_in_a_group_where_that_is_the_most():
    servers = servers_of(a=2, b=4, c=2)
    heavy = {"data_edge_bytes": 0.1, "stage_edge_bytes": 1.0, "expert_edge_bytes": 10.0, "expert_nodes": 2}
    found = [each.group for each in pipeline_order(servers, PipelineTraffic(stages=2, **heavy))]
    assert all(found[at] == found[at + 1] for at in range(0, 8, 2))
    odd = PipelineTraffic(stages=2, **heavy | {"expert_nodes": 3})
    assert sorted(each.name for each in pipeline_order(servers, odd)) == sorted(each.name for each in servers)


def test_one_group_and_stages_that_do_not_divide_leave_the_order():
    traffic = PipelineTraffic(stages=2, data_edge_bytes=1, stage_edge_bytes=10)
    for servers in (servers_of(a=4), servers_of(a=2, b=1)):
        assert pipeline_order(servers, traffic) == tuple(servers)
