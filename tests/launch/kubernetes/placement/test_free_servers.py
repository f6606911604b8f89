"""Servers that are free at this minute, and who holds the others."""

from tests.launch.kubernetes.paper_cluster import Cluster, node, pod
from tests.launch.kubernetes.placement.test_inventory import A100, H100, SMALL, gpu_node

from gangline.launch.kubernetes.objects.labels import GANG, POOL
from gangline.launch.kubernetes.placement.inventory import read_free_servers, read_inventory

GPU = "nvidia.com/gpu"


def test_what_jobs_hold_is_not_free_and_its_holder_is_named():
    pods = [
        pod("g-0", on="a", labels={GANG: "gang-x"}, owner="Job", **{GPU: "8"}),
        pod("d", on="b", owner="DaemonSet", cpu="1"),
        pod("o", on="c", owner="Job", **{GPU: "4"}),
    ]
    cluster = Cluster(nodes=[gpu_node("a"), gpu_node("b"), gpu_node("c")], pods=pods)
    inventory = read_inventory(cluster, SMALL)
    found = read_free_servers(cluster, SMALL, inventory)
    assert (inventory.num_nodes, found.free) == (3, 1)
    assert found.holders == ("gang-x", "x")


def test_cores_are_counted_in_pods_like_the_inventory_counts_them():
    pods = [pod("j", on="a", owner="Job", cpu="3")]
    cluster = Cluster(nodes=[node("a", cpu="4"), node("b", cpu="2")], pods=pods)
    found = read_free_servers(cluster, SMALL, read_inventory(cluster, SMALL))
    assert (found.free, found.holders) == (3, ())


def test_servers_of_another_pool_are_not_ours():
    cluster = Cluster(nodes=[gpu_node("a"), gpu_node("b", labels=H100 | {POOL: "other"})], pods=[])
    inventory = read_inventory(cluster, SMALL)
    assert (inventory.num_nodes, read_free_servers(cluster, SMALL, inventory).free) == (1, 1)
    other = read_inventory(cluster, SMALL, pool="other")
    assert read_free_servers(cluster, SMALL, other, pool="other").free == 1


def test_servers_with_another_kind_of_gpu_than_the_plans_are_not_free_for_it():
    cluster = Cluster(nodes=[gpu_node("a"), gpu_node("b"), gpu_node("c", labels=A100)], pods=[])
    assert read_free_servers(cluster, SMALL, read_inventory(cluster, SMALL)).free == 2
