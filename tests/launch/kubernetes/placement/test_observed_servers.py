"""Where a gang stands that nobody said where it goes: its nodes, and groups by their labels."""

import pytest
from tests.cluster.fake.api import FakeApi

from gangline.errors import ConfigError
from gangline.launch.kubernetes.placement.servers import ObservedServers


def cluster(**groups):
    api = FakeApi()
    for name, group in groups.items():
        labels = {"gangline/fabric-group": group, "gangline/fabric-block": "hall"} if group else {}
        api.create("/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}})
    return api


def pods(*nodes):
    return [
        {
            "metadata": {"annotations": {"batch.kubernetes.io/job-completion-index": str(rank)}},
            "spec": {"nodeName": node},
        }
        for rank, node in reversed(list(enumerate(nodes)))
    ]


def observed(api, *nodes):
    found = ObservedServers(api, num_nodes=len(nodes))
    found.look(pods(*nodes))
    return [(server.name, server.group, server.block) for server in found.servers]


def test_servers_are_in_the_order_of_node_ranks_with_their_groups():
    assert observed(cluster(a="g1", b="g2"), "b", "a") == [("b", "g2", "hall"), ("a", "g1", "hall")]


def test_what_is_not_known_of_all_is_not_said_of_some():
    api = cluster(a="g1", b=None)
    assert observed(api, "a", "b") == observed(api, "a", "gone") == []
    api.server.denied.add(("list", "nodes"))
    assert observed(api, "a", "a") == []


def test_why_a_group_is_not_known_is_said():
    found = ObservedServers(cluster(a="g1", b=None, c=None), num_nodes=2)
    found.look(pods("a", "a"))
    assert found.unknown == ""
    found.look(pods("a", "c"))
    assert found.unknown == "c has no label of the network"
    found.look(pods("c", "b"))
    assert found.unknown == "b has no label of the network, nor have 1 more"
    denied = cluster(a="g1")
    denied.server.denied.add(("list", "nodes"))
    found = ObservedServers(denied, num_nodes=2)
    found.look(pods("a", "a"))
    assert found.unknown == "this account may not list nodes (gangline-reader)"


def test_labels_that_contradict_each_other_are_reported():
    api = cluster(a="g1", b="g1")
    for name, leaf in {"a": "l1", "b": "l2"}.items():
        api.patch(f"/api/v1/nodes/{name}", {"metadata": {"annotations": {"gangline/fabric-leaves": leaf}}})
    with pytest.raises(ConfigError):
        observed(api, "a", "b")


def test_it_looks_once_all_are_bound_and_again_when_one_has_moved():
    found = ObservedServers(cluster(a="g1", b="g2", c="g2"), num_nodes=2)
    assert not found.is_due(pods("a", None))
    assert found.is_due(pods("a", "b"))
    found.look(pods("a", "b"))
    assert not found.is_due(pods("a", "b"))
    assert found.is_due(pods("a", "c"))
    assert not ObservedServers(FakeApi(), num_nodes=1).is_due(pods("a")), "of one node there is no order"
