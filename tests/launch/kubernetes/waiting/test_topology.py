"""What Kueue 0.19.2 says of a topology without room: which part of it is final, and which may pass."""

import pytest
from tests.cluster.fake.api import FakeApi
from tests.launch.kubernetes.gangs import NOW
from tests.launch.kubernetes.waiting.seen import SNAPSHOTS, read, snapshot

from gangline.launch.kubernetes.cluster.facts import ClusterFacts
from gangline.launch.kubernetes.cluster.rights import DRIVER, READER
from gangline.launch.kubernetes.state.roots import Root
from gangline.launch.kubernetes.waiting import explain
from gangline.launch.kubernetes.waiting.evidence import gather_evidence
from gangline.launch.kubernetes.waiting.kueue import read_topology_verdict

NONE_OF_TWO = """couldn't assign flavors to pod set main: topology "net" doesn't allow to fit any of 2 pod(s)"""
GROUP = "kueue.x-k8s.io/v1beta2"
RACK = "cloud.provider.com/topology-rack"
FACTS = ClusterFacts(served=(f"{GROUP}/workloads", f"{GROUP}/clusterqueues"), queues={"gangs": "gpus"})
ROOT = Root(
    "/apis/batch/v1/namespaces/gangs/jobs/g", {"metadata": {"name": "g", "uid": "u"}, "spec": {"suspend": True}}
)


def kept(name, message=None):
    found = read(SNAPSHOTS / f"kueue-0.19.2-{name}.json")
    if message is not None:
        found["workload"]["status"]["conditions"][0]["message"] = message
    return found


def test_every_exclusion_is_read_with_its_number():
    excluded = 'taint "a=b:NoSchedule": 2, resource "nvidia.com/gpu": 3, nodeSelector: 1'
    verdict = read_topology_verdict(f"{NONE_OF_TWO}. Total nodes: 8; excluded: {excluded}")
    assert [(each.kind, each.name, each.servers) for each in verdict.exclusions] == [
        ("taint", "a=b:NoSchedule", 2), ("resource", "nvidia.com/gpu", 3), ("nodeSelector", "", 1),
    ]  # fmt: skip
    assert (verdict.fits, verdict.wanted, verdict.room, verdict.is_alone) == (0, 2, 2, True)


@pytest.mark.parametrize("more", [", insufficient unused quota for cpu in flavor plain, 2 more needed", "; more"])
def test_another_flavor_may_have_the_room_that_this_one_never_has(more):
    text = f'{NONE_OF_TWO}. Total nodes: 4; excluded: taint "gangline/pool=gpus:NoSchedule": 4{more}'
    assert not read_topology_verdict(text).is_alone
    assert explain(snapshot(kept("taint", text))).final_after_seconds is None


@pytest.mark.parametrize(
    ("excluded", "is_final"),
    [
        ('taint "gangline/pool=gpus:NoSchedule": 4', True),
        ('taint "team=vision:NoExecute": 4', True),
        ('taint "node.kubernetes.io/unschedulable:NoSchedule": 4', False),
        ('taint "node.kubernetes.io/not-ready:NoSchedule": 1, taint "team=vision:NoExecute": 3', False),
        ('taint "ToBeDeletedByClusterAutoscaler=1:NoSchedule": 4', False),
        ("nodeSelector: 4", True),
        ('resource "cpu": 1, taint "team=vision:NoExecute": 3', False),
        ('taint "team=vision:NoExecute": 3', False),
        ("a-word-of-tomorrow: 4", False),
    ],
)
def test_only_what_no_ending_pod_and_no_recovering_server_changes_is_final(excluded, is_final):
    found = explain(snapshot(kept("taint", f"{NONE_OF_TWO}. Total nodes: 4; excluded: {excluded}")))
    assert (found.final_after_seconds is not None) == is_final
    assert "scattered" not in found.sentence


def test_servers_are_scattered_only_where_single_pods_would_fit():
    seen = kept("scattered")
    assert explain(snapshot(seen)).kind == "scattered"
    message = seen["workload"]["status"]["conditions"][0]["message"]
    fewer = kept("scattered", message.replace("Total nodes: 8", "Total nodes: 6"))
    assert explain(snapshot(fewer)).kind == "unschedulable", "3 servers for 4 pods"
    del seen["workload"]["spec"]["podSets"][0]["topologyRequest"]["required"]
    assert explain(snapshot(seen)).kind == "unschedulable", "it asks for no group, so scattering does no harm"


def test_tile_that_one_rack_holds_when_it_is_empty_is_waited_for():
    seen = kept("tile-too-large")
    assert explain(snapshot(seen)).final_after_seconds == 600
    for node in seen["topology_nodes"]:
        node["metadata"]["labels"][RACK] = "r1"
    assert explain(snapshot(seen)).final_after_seconds is None


@pytest.fixture
def api():
    """A gang that asks for GPUs where `net` has servers without any, and another flavor has some."""
    made = FakeApi(serve=("kueue",))
    workload = kept("no-server-has-gpus")["workload"]
    workload["metadata"] |= {"labels": {"kueue.x-k8s.io/job-uid": "u"}}
    workload["status"]["conditions"][0]["lastTransitionTime"] = NOW.isoformat()
    flavors = [{"name": "racks"}, {"name": "others"}]
    put(made, "workload", "gangs", workload)
    put(made, "clusterqueue", "", named("gpus", resourceGroups=[{"flavors": flavors}]))
    put(made, "resourceflavor", "", named("racks", topologyName="net", nodeLabels={"kind": "plain"}))
    put(made, "resourceflavor", "", named("others", nodeLabels={"kind": "gpus"}))
    for kind, gpus in {"plain": 0, "gpus": 8}.items():
        for number in range(4):
            put_server(made, f"{kind}-{number}", kind, gpus)
    return made


def put_server(api, name, kind, gpus):
    metadata = {"name": name, "labels": {"kind": kind}}
    status = {"allocatable": {"cpu": "16", "nvidia.com/gpu": str(gpus)}}
    api.server.write(("nodes", "", name), {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": status})


def named(name, **spec):
    return {"metadata": {"name": name}, "spec": spec}


def put(api, kind, namespace, body):
    key = (f"{kind}s.kueue.x-k8s.io", namespace, body["metadata"]["name"])
    api.server.write(key, {"apiVersion": GROUP, "kind": kind.title(), **body})


def final_after(api):
    return explain(gather_evidence(api, ROOT, [], num_nodes=2, facts=FACTS)).final_after_seconds


def test_servers_of_the_flavors_of_that_topology_are_read_by_those_who_may(api):
    assert final_after(FakeApi(server=api.server, rights=(*DRIVER, *READER))) == 600
    assert final_after(FakeApi(server=api.server, rights=DRIVER)) is None, "it cannot tell taken from missing"
    put_server(api, "plain-2", "plain", 8)
    assert final_after(FakeApi(server=api.server, rights=(*DRIVER, *READER))) is None
