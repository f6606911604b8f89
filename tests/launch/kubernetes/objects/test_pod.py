"""The pod of a gang: what it gets, where it may go, what its keeper reads."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.launch.kubernetes.gangs import CPU, GPU, GPU_SITE, setting

from gangline.errors import ConfigError
from gangline.keeper.ipc.environment import KeeperEnvironment
from gangline.launch.kubernetes.cluster.facts import ClusterFacts
from gangline.launch.kubernetes.objects.pod import pod_template, resources, volume_mounts, volumes
from gangline.launch.kubernetes.objects.pod_environment import literal, pod_environment
from gangline.launch.kubernetes.placement.resources import to_scheduler_units
from gangline.spec.config.site import PodTable
from gangline.spec.gang.podset import Placement, Resources


def environment(found, index=0):
    """What the kubelet makes of it in the pod of that completion index."""
    entries = pod_environment(found, master="gang-0.gang")
    assert len({each["name"] for each in entries}) == len(entries)
    return {each["name"]: str(index) if "valueFrom" in each else expanded(each["value"]) for each in entries}


def expanded(text):
    """As Kubernetes puts variables in, where none is defined: `$$` is a dollar, all else stays."""
    return text.replace("$$", "$")


def spec_of(found):
    return pod_template(found, job="gang")["spec"]


def test_keeper_reads_its_environment():
    found = KeeperEnvironment.read(environment(setting(GPU, pod=GPU_SITE), index=3))
    assert (found.node_rank, found.world_size, found.local_world_size) == (3, 32, 8)
    assert (found.num_nodes, found.master_addr, found.master_port) == (4, "gang-0.gang", 29500)
    assert (found.grace_seconds, found.deadline_seconds, found.metrics_port) == (120.0, 3600.0, 9400)
    assert str(found.store_credentials_file) == "/var/run/gangline/secrets/store-credentials"


def test_torchrun_reads_the_same_rendezvous():
    found = environment(setting(GPU), index=2)
    assert found["PET_NODE_RANK"] == found["NODE_RANK"] == "2"
    assert (found["PET_NNODES"], found["PET_NPROC_PER_NODE"]) == ("4", "8")
    assert (found["PET_MASTER_ADDR"], found["PET_MASTER_PORT"]) == (found["MASTER_ADDR"], found["MASTER_PORT"])


def test_line_cannot_change_what_makes_the_gang():
    env = {"WORLD_SIZE": "1", "NODE_RANK": "7", "GANGLINE_STORE": "s3://elsewhere", "MINE": "kept"}
    found = environment(setting(replace(CPU, env=env)))
    assert (found["WORLD_SIZE"], found["NODE_RANK"], found["MINE"]) == ("2", "0", "kept")
    assert found["GANGLINE_STORE"] == CPU.store


def test_line_wins_over_the_site():
    found = environment(setting(replace(CPU, env={"NCCL_SOCKET_IFNAME": "ib0"})))
    assert (found["GLOO_SOCKET_IFNAME"], found["NCCL_SOCKET_IFNAME"]) == ("eth0", "ib0")


@given(st.text("$()AB", max_size=12))
def test_values_come_out_as_they_went_in(text):
    assert expanded(literal(text)) == text
    assert "$(" not in literal(text).replace("$$", "")


def test_requests_equal_limits_and_hold_the_shared_memory():
    found = resources(setting(GPU, pod=GPU_SITE))
    assert found["requests"] == found["limits"]
    assert found["limits"]["memory"] == str((512 + 64) * 1024**3)
    assert (found["limits"]["nvidia.com/gpu"], found["limits"]["rdma/hca"]) == ("8", "8")


def test_pod_gets_what_the_site_says_of_each_rank():
    site = PodTable(cpus=1.5, memory_bytes=3e9, shm_bytes=5e8)
    assert resources(setting(pod=site))["limits"] == {"cpu": "3", "memory": "6500000000"}


@pytest.mark.parametrize(("cores", "wanted"), [(1, "1"), (0.5, "500m"), (2.25, "2250m"), (0.0001, "1m"), (0.7, "700m")])
def test_cores_are_written_as_kubernetes_reads_them(cores, wanted):
    asked = replace(CPU, resources=Resources(cpus=cores))
    assert resources(setting(asked))["limits"]["cpu"] == wanted


@given(st.floats(min_value=0.001, max_value=1024, allow_nan=False))
def test_pod_gets_no_less_than_was_asked(cores):
    text = resources(setting(replace(CPU, resources=Resources(cpus=cores))))["limits"]["cpu"]
    assert cores * 1000 - 0.01 <= to_scheduler_units("cpu", text) <= cores * 1000 + 1


def test_rdma_is_one_a_gpu_where_the_site_names_it():
    asked = replace(GPU, resources=replace(GPU.resources, rdma=0))
    assert resources(setting(asked, pod=GPU_SITE))["limits"]["rdma/hca"] == "8"
    assert "rdma/hca" not in resources(setting(CPU, pod=GPU_SITE))["limits"]


def test_rdma_without_a_name_is_refused():
    with pytest.raises(ConfigError, match="wanted 8 RDMA devices a pod, found no name"):
        resources(setting(GPU))


def test_gang_without_secrets_mounts_none():
    found = setting(replace(CPU, secrets=()))
    assert "secrets" not in {each["name"] for each in (*volumes(found, job="gang"), *volume_mounts(found))}


def test_secrets_are_mounted_whole_so_that_they_are_renewed():
    mounts = {each["name"]: each for each in volume_mounts(setting())}
    assert mounts["secrets"] == {
        "name": "secrets",
        "mountPath": "/var/run/gangline/secrets",
        "readOnly": True,
    }


def test_every_mount_has_its_volume():
    found = setting(GPU, pod=GPU_SITE)
    assert [each["name"] for each in volumes(found, job="gang")] == [each["name"] for each in volume_mounts(found)]


def test_pool_is_label_and_taint():
    spec = spec_of(setting(GPU, pod=GPU_SITE))
    assert spec["nodeSelector"] == {"gpu": "h200", "gangline/pool": "h200"}
    assert {"key": "gangline/pool", "operator": "Equal", "value": "h200"} in spec["tolerations"]


def test_lost_servers_are_left_after_a_minute():
    found = {each["key"]: each for each in spec_of(setting())["tolerations"]}
    assert found["node.kubernetes.io/unreachable"]["tolerationSeconds"] == 60
    assert found["node.kubernetes.io/not-ready"]["effect"] == "NoExecute"


@pytest.mark.parametrize(("route", "gates"), [("gates", 1), ("kueue", 0), ("none", 0)])
def test_only_the_placer_is_waited_for(route, gates):
    found = spec_of(setting(GPU, pod=GPU_SITE, route=route, facts=ClusterFacts(queues={"shared": "everyone"})))
    assert len(found.get("schedulingGates", ())) == gates


def test_names_of_ports_fit():
    (container,) = spec_of(setting(GPU, pod=GPU_SITE))["containers"]
    names = [each["name"] for each in container["ports"]]
    assert len(set(names)) == len(names) == 3 + 8
    assert all(len(name) <= 15 for name in names)


def test_it_goes_to_servers_of_the_planned_kind_of_gpu_alone():
    labels = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}
    found = spec_of(
        setting(replace(GPU, placement=Placement(labels=labels)), pod=replace(GPU_SITE, selector={"a": "b"}))
    )
    assert found["nodeSelector"] == {"a": "b", **labels, "gangline/pool": "h200"}
