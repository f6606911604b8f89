"""Servers: what is free, what is refused, and why."""

import pytest
from tests.launch.kubernetes.paper_cluster import Cluster, node, pod

from gangline.errors import ConfigError
from gangline.launch.kubernetes.placement.servers import (
    read_fabric_groups,
    read_servers,
    refusal,
    survey_servers,
)


def read(*nodes, pods=()):
    return {each.node: each for each in read_servers(Cluster(nodes=nodes, pods=pods))}


def test_free_is_what_the_pods_of_everybody_leave():
    pods = [pod("a", on="n", cpu="2"), pod("b", on="n", namespace="others", cpu="500m"), pod("c", cpu="1")]
    assert read(node("n"), pods=pods)["n"].free["cpu"] == 5500
    assert read(node("n"), pods=pods)["n"].free["pods"] == 108


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_pods_that_ended_hold_nothing(phase):
    assert read(node("n"), pods=[pod("a", on="n", phase=phase, cpu="2")])["n"].free["cpu"] == 8000


def test_only_pods_that_no_job_made_stand():
    pods = [
        pod("daemon", on="n", owner="DaemonSet", cpu="1"),
        pod("job", on="n", owner="Job", cpu="2"),
        pod("gang", on="n", labels={"gangline/gang": "g"}, cpu="3"),
    ]
    server = read(node("n"), pods=pods)["n"]
    assert (server.permanent["cpu"], server.free["cpu"]) == (1000, 2000)


def test_servers_are_called_by_their_host_name_label():
    assert read(node("n", labels={"kubernetes.io/hostname": "h"}))["n"].name == "h"


def test_cordoned_unnamed_and_doubled_servers_say_why_they_take_nothing():
    unnamed = node("b")
    del unnamed["metadata"]["labels"]["kubernetes.io/hostname"]
    twins = [node(name, labels={"kubernetes.io/hostname": "twin"}) for name in ("c", "d")]
    found = read(node("a", unschedulable=True), unnamed, *twins)
    assert [found[name].unusable_reason.split(" ")[0] for name in "abcd"] == ["is", "lacks", "shares", "shares"]
    assert all(each.unusable_reason for each in found.values())


TAINT = {"key": "gpu", "value": "yes", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    ("toleration", "bears"),
    [
        ({"key": "gpu", "operator": "Exists"}, True),
        ({"key": "gpu", "value": "yes"}, True),
        ({"key": "gpu", "operator": "Equal", "value": "yes", "effect": "NoSchedule"}, True),
        ({"operator": "Exists"}, True),
        ({"key": "gpu", "value": "no"}, False),
        ({"key": "gpu", "operator": "Exists", "effect": "NoExecute"}, False),
        ({"key": "other", "operator": "Exists"}, False),
        ({"value": "yes"}, False),
    ],
)
def test_taints_keep_out_pods_that_do_not_tolerate_them(toleration, bears):
    server = read(node("n", taints=[TAINT]))["n"]
    assert (refusal(server, {}, [toleration]) == "") is bears


def test_a_preference_keeps_no_one_out():
    assert refusal(read(node("n", taints=[{"key": "x", "effect": "PreferNoSchedule"}]))["n"], {}, []) == ""


def test_a_selector_names_the_label_that_is_missing():
    assert refusal(read(node("n"))["n"], {"disk": "fast"}, []) == "lacks the label disk=fast"


def test_without_a_right_to_list_pods_all_counts_as_free():
    (server,) = read_servers(Cluster(nodes=[node("n")]))
    assert (server.free, server.are_pods_known) == (server.allocatable, False)


def test_servers_come_in_order_of_their_names_and_numbers_in_names_count_as_numbers():
    found = survey_servers([node(f"a-{i}") for i in (10, 2, 1)], [])
    assert [each.name for each in found] == ["a-1", "a-2", "a-10"]


def test_groups_of_the_network_are_those_of_the_labels_and_nodes_without_them_are_in_none():
    at = {"a-2": "g1", "a-1": "g1", "b": "g2"}
    nodes = [node(name, labels={"gangline/fabric-group": group}) for name, group in at.items()]
    found = read_fabric_groups(Cluster(nodes=[*nodes, node("control")], pods=[]))
    assert [(group.name, group.servers) for group in found] == [("g1", ("a-1", "a-2")), ("g2", ("b",))]


def test_cluster_without_labels_of_the_network_is_refused_with_what_works():
    with pytest.raises(ConfigError, match="found none on 1 nodes; label the nodes with gangline/fabric-group"):
        read_fabric_groups(Cluster(nodes=[node("a")], pods=[]))
