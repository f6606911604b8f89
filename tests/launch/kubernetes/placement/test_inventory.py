"""What the planner is told of a cluster."""

import pytest
from tests.launch.kubernetes.paper_cluster import Cluster, node, pod

from gangline.errors import ConfigError
from gangline.launch.kubernetes.placement.inventory import read_inventory
from gangline.spec.config.site import GpuTable, PodTable

SMALL = PodTable(cpus=1.0, memory_bytes=4e9, shm_bytes=1e9)
H100 = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3", "nvidia.com/gpu.memory": "81559"}
A100 = {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB", "nvidia.com/gpu.memory": "40960"}


def gpu_node(name, number=8, labels=None, **more):
    return node(name, cpu="64", memory="512Gi", labels=labels or H100, **{"nvidia.com/gpu": str(number)}, **more)


def test_a_cpu_cluster_is_as_many_nodes_as_pods_fit():
    found = read_inventory(Cluster(nodes=[node("a", cpu="4"), node("b", cpu="2500m")], pods=[]), SMALL)
    assert (found.num_nodes, found.cores, found.memory_bytes, found.origin) == (6, 1, 4_000_000_000, "kubernetes")
    assert found.gpus is None


def test_a_pod_of_several_ranks_is_a_node_of_as_many_cores():
    found = read_inventory(Cluster(nodes=[node("a", cpu="4")], pods=[]), PodTable(procs=2, cpus=0.5, memory_bytes=1e9))
    assert (found.num_nodes, found.cores) == (4, 2)


def test_what_jobs_hold_now_counts_and_what_is_free_does_not():
    pods = [pod("d", on="a", owner="DaemonSet", cpu="1"), pod("j", on="a", owner="Job", cpu="3")]
    assert read_inventory(Cluster(nodes=[node("a", cpu="4")], pods=pods), SMALL).num_nodes == 3


def test_gpu_servers_come_with_name_and_memory_of_their_labels():
    found = read_inventory(Cluster(nodes=[gpu_node("a"), gpu_node("b"), node("c")], pods=[]), SMALL)
    gpus = found.gpus
    assert (found.num_nodes, gpus.count, gpus.name) == (2, 8, "NVIDIA-H100-80GB-HBM3")
    assert gpus.memory_bytes == 81559 * 2**20


def test_unlike_servers_are_planned_for_by_their_smallest():
    found = read_inventory(Cluster(nodes=[gpu_node("a", 8), gpu_node("b", 4)], pods=[]), SMALL)
    assert (found.num_nodes, found.gpus.count) == (2, 4)


def test_of_two_kinds_of_gpu_the_one_with_more_of_them_is_planned_for():
    nodes = [gpu_node("a", labels=A100), gpu_node("b"), gpu_node("c")]
    assert read_inventory(Cluster(nodes=nodes, pods=[]), SMALL).gpus.name == "NVIDIA-H100-80GB-HBM3"


def test_a_pod_of_half_a_server_fits_twice():
    found = read_inventory(Cluster(nodes=[gpu_node("a")], pods=[]), PodTable(procs=4, memory_bytes=4e9))
    assert (found.num_nodes, found.gpus.count) == (2, 4)


def test_an_old_gpu_has_no_bf16():
    labels = {"nvidia.com/gpu.product": "Tesla-V100", "nvidia.com/gpu.compute.major": "7"}
    assert not read_inventory(Cluster(nodes=[gpu_node("a", labels=labels)], pods=[]), SMALL).gpus.has_bf16


def test_rdma_is_needed_where_the_site_names_it():
    table = PodTable(rdma="rdma/ib", memory_bytes=4e9)
    nodes = [gpu_node("a"), gpu_node("b", **{"rdma/ib": "8"})]
    assert read_inventory(Cluster(nodes=nodes, pods=[]), table).num_nodes == 1


def test_servers_that_refuse_us_do_not_count():
    taint = {"key": "reserved", "effect": "NoSchedule"}
    nodes = [node("a", cpu="1"), node("b", cpu="1", taints=[taint]), node("c", cpu="1", unschedulable=True)]
    assert read_inventory(Cluster(nodes=nodes, pods=[]), SMALL).num_nodes == 1
    bearing = PodTable(memory_bytes=4e9, tolerate=("reserved",))
    assert read_inventory(Cluster(nodes=nodes, pods=[]), bearing).num_nodes == 2


def test_where_nothing_fits_each_server_says_why():
    nodes = [node("a", cpu="500m"), node("b", unschedulable=True)]
    with pytest.raises(
        ConfigError, match=r"wanted a server for 1 cpu, 5.0 GB memory, found none: a lacks cpu; b is cord"
    ):
        read_inventory(Cluster(nodes=nodes, pods=[]), SMALL)


def test_without_nodes_the_message_says_so():
    with pytest.raises(ConfigError, match="found no nodes at all"):
        read_inventory(Cluster(nodes=[], pods=[]), SMALL)


def test_where_pods_may_not_be_listed_the_origin_reports():
    assert read_inventory(Cluster(nodes=[node("a")]), SMALL).origin == "kubernetes, nodes alone"


def quota(**hard):
    return {"metadata": {"name": "q"}, "spec": {"hard": hard}}


def test_where_nodes_may_not_be_listed_the_tightest_quota_answers():
    quotas = [quota(**{"requests.cpu": "10", "pods": "50"}), quota(**{"limits.memory": "21G"})]
    found = read_inventory(Cluster(resourcequotas=quotas), SMALL)
    assert (found.num_nodes, found.origin) == (4, "quota")


def test_a_quota_of_gpus_is_an_inventory_of_gpus():
    found = read_inventory(
        Cluster(resourcequotas=[quota(**{"requests.nvidia.com/gpu": "16"})]),
        PodTable(procs=8),
        gpu={"h100": GpuTable(memory_bytes=80e9)},
    )
    assert (found.num_nodes, found.gpus.count, found.gpus.name) == (2, 8, "h100")


def test_without_any_right_the_site_file_answers_or_says_what_is_missing():
    found = read_inventory(Cluster(resourcequotas=[]), PodTable(procs=8), gpu={"h100": GpuTable(memory_bytes=80e9)})
    assert (found.num_nodes, found.gpus.count, found.origin) == (1, 8, "site.toml")
    with pytest.raises(ConfigError, match="bind gangline-reader"):
        read_inventory(Cluster(resourcequotas=[]), SMALL)


def test_servers_of_a_pool_count_for_it_alone_as_for_the_placer():
    fast = {"gangline/pool": "fast"}
    cluster = Cluster(nodes=[node("a", cpu="4"), node("b", cpu="2", labels=fast)], pods=[])
    assert read_inventory(cluster, SMALL).num_nodes == 4
    assert read_inventory(cluster, SMALL, pool="fast").num_nodes == 2


FAST = {"gangline/pool": "fast"}
WORKS = 'found none; pools of this cluster: fast; launch.pool = "fast" works'


@pytest.mark.parametrize(
    ("pool", "labels", "says"),
    [
        ("slow", FAST, f"wanted servers with the label gangline/pool=slow, {WORKS}"),
        ("slow", {}, "found none; pools of this cluster: none; leave it out"),
        (None, FAST, f"wanted servers without the label gangline/pool, {WORKS}"),
    ],
)
def test_pool_without_servers_is_refused_with_those_that_have_some(pool, labels, says):
    with pytest.raises(ConfigError, match=says):
        read_inventory(Cluster(nodes=[node("a", cpu="4", labels=labels)], pods=[]), SMALL, pool=pool)


def test_gangs_are_kept_to_the_kind_that_is_planned_for_where_there_are_several():
    nodes = [gpu_node("a", labels=A100), gpu_node("b"), gpu_node("c")]
    found = read_inventory(Cluster(nodes=nodes, pods=[]), SMALL)
    assert found.labels == {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}
    assert read_inventory(Cluster(nodes=nodes[1:], pods=[]), SMALL).labels == {}


def test_servers_of_every_other_kind_that_can_be_selected_are_reported_with_their_label():
    nodes = [gpu_node("a", labels=A100), gpu_node("b"), gpu_node("c"), gpu_node("d", labels={"no": "name"})]
    found = read_inventory(Cluster(nodes=nodes, pods=[]), SMALL)
    assert [(each.gpus.name, each.num_nodes, each.labels) for each in found.kinds] == [
        (kind["nvidia.com/gpu.product"], number, {"nvidia.com/gpu.product": kind["nvidia.com/gpu.product"]})
        for kind, number in ((H100, 2), (A100, 1))
    ]
    assert not read_inventory(Cluster(nodes=nodes[1:3], pods=[]), SMALL).others
