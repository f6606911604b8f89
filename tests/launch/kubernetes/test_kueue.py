"""Route B, as far as it is data: wishes and answers in Kueue's published forms."""

from dataclasses import replace

import pytest
from tests.cluster.fake.api import FakeApi
from tests.launch.kubernetes.gangs import GPU

from gangline.errors import ConfigError
from gangline.launch.kubernetes.facts import Facts
from gangline.launch.kubernetes.kueue import assignment, choose_queue, demand_flavor, kueue_wishes, read_assignment
from gangline.spec.placement import Placement
from gangline.spec.site import LaunchTable

TAS = Facts(topologies=("racks",), queues={"shared": "gpus"})
LEVEL = "gangline/fabric-group"
WISH = Placement(servers=(), devices_per_server=8, labels=(LEVEL,))


def wishes(wish=WISH, podset=GPU, facts=TAS):
    return kueue_wishes(podset, wish, LaunchTable(), facts)


def test_the_only_queue_is_taken_and_the_root_is_labelled_with_it():
    assert wishes().root_labels == {"kueue.x-k8s.io/queue-name": "shared"}


def test_a_gangs_own_queue_goes_first():
    facts = replace(TAS, queues={"shared": "gpus", "own": "gpus"})
    assert wishes(podset=replace(GPU, queue="own"), facts=facts).root_labels["kueue.x-k8s.io/queue-name"] == "own"


@pytest.mark.parametrize(("wanted", "queues", "says"), [
    ("other", {"shared": "g"}, "wanted a LocalQueue other, found no such one; this namespace has shared"),
    (None, {"a": "g", "b": "g"}, "found none; this namespace has a, b"),
    (None, {}, "this namespace has none at all"),
])  # fmt: skip
def test_a_queue_that_is_not_there_is_refused_with_those_that_are(wanted, queues, says):
    with pytest.raises(ConfigError, match=says):
        choose_queue(wanted, Facts(queues=queues))


@pytest.mark.parametrize(("wish", "annotations"), [
    (WISH, {"podset-preferred-topology": LEVEL}),
    (replace(WISH, tile=4), {"podset-required-topology": LEVEL}),
    (replace(WISH, tile=2), {"podset-preferred-topology": LEVEL, "podset-slice-required-topology": LEVEL,
                             "podset-slice-size": "2"}),
    (None, {"podset-unconstrained-topology": "true"}),
])  # fmt: skip
def test_wishes_for_consecutive_pods_are_annotations_of_the_template(wish, annotations):
    found = wishes(wish).pod_annotations
    assert found == {f"kueue.x-k8s.io/{key}": value for key, value in annotations.items()}


def test_without_a_topology_nothing_is_wished_for():
    assert wishes(facts=replace(TAS, topologies=())).pod_annotations == {}


def test_a_tile_that_does_not_divide_the_gang_is_refused():
    with pytest.raises(ConfigError, match="wanted a tile that divides 4 pods, found 3"):
        wishes(replace(WISH, tile=3))


LEVELS = ["block", "rack", "kubernetes.io/hostname"]
BETA_1 = {
    "levels": LEVELS,
    "domains": [{"values": ["b1", "r1", "x1"], "count": 2}, {"values": ["b1", "r2", "x9"], "count": 1}],
}
BETA_2 = {
    "levels": LEVELS,
    "slices": [
        {
            "domainCount": 2,
            "valuesPerLevel": [
                {"universal": "b1"},
                {"individual": {"prefix": "r", "roots": ["1", "2"]}},
                {"individual": {"prefix": "x", "roots": ["1", "9"]}},
            ],
            "podCounts": {"individual": [2, 1]},
        }
    ],
}


def workload(told, owner="g"):
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta1",
        "kind": "Workload",
        "metadata": {
            "name": f"job-{owner}-1",
            "namespace": "gangs",
            "uid": owner,
            "ownerReferences": [
                {"apiVersion": "batch/v1", "kind": "Job", "name": owner, "uid": owner, "controller": True}
            ],
        },
        "status": {"admission": {"podSetAssignments": [{"name": "main", "topologyAssignment": told}]}},
    }


@pytest.mark.parametrize("told", [BETA_1, BETA_2], ids=["v1beta1", "v1beta2"])
def test_both_forms_of_an_assignment_are_read_in_node_rank_order(told):
    found = assignment(workload(told))
    assert [(s.name, s.group, s.block) for s in found.servers] == [
        ("x1", "r1", "b1"), ("x1", "r1", "b1"), ("x9", "r2", "b1"),
    ]  # fmt: skip


def test_one_count_for_all_domains_is_read():
    told = {"levels": ["kubernetes.io/hostname"], "slices": [
        {"domainCount": 2, "valuesPerLevel": [{"individual": {"roots": ["a", "b"]}}], "podCounts": {"universal": 1}},
    ]}  # fmt: skip
    assert [server.name for server in assignment(workload(told)).servers] == ["a", "b"]


@pytest.mark.parametrize(
    "given",
    [{"metadata": {"name": "w"}}, workload({"levels": ["rack"], "domains": [{"values": ["r1"], "count": 1}]})],
    ids=["before admission", "no servers named"],
)
def test_what_names_no_servers_is_no_placement(given):
    assert assignment(given) is None


def test_the_assignment_of_a_gang_is_found_by_its_owner():
    api = FakeApi(serve=("kueue",))
    for owner, told in (("other", {**BETA_1, "domains": []}), ("g", BETA_1)):
        body = workload(told, owner)
        api.server.write(("workloads.kueue.x-k8s.io", "gangs", body["metadata"]["name"]), body)
    assert [server.name for server in read_assignment(api, "g").servers] == ["x1", "x1", "x9"]


def test_without_kueue_there_is_no_assignment():
    assert read_assignment(FakeApi(), "g") is None


def test_pods_without_the_labels_of_their_flavor_are_refused():
    pod = {"metadata": {"name": "g-0"}, "spec": {"nodeSelector": {"gpu": "h200"}}}
    demand_flavor([pod], {"gpu": "h200"}, flavor="h200")
    with pytest.raises(ConfigError, match=r"wanted the node selector \{'gpu': 'a100'\} of flavor a100"):
        demand_flavor([pod], {"gpu": "a100"}, flavor="a100")
