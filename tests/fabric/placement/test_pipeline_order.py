"""Order of a pipeline's servers: all orders of few, nothing that a ring already has right, tiles that stay together."""

from itertools import permutations

import pytest

from gangline.fabric.placement.mapping import EdgeBytes, bytes_between
from gangline.fabric.placement.pipeline_order import pipeline_order
from gangline.spec.gang.podset import PipelineTraffic, PlacedServer


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
