"""What a cluster serves, and what an account may do there, read through a fake API server."""

from datetime import UTC, datetime, timedelta

import pytest
from tests.cluster.fake.api import FakeApi

from gangline.errors import IntegrityError
from gangline.launch.kubernetes.cluster.facts import ClusterFacts, missing_in_cluster, missing_rights, read_facts
from gangline.launch.kubernetes.cluster.rights import PLACER_CLUSTER, SELF_PLACER

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("spelling", "is_integer"),
    [("podSpecOverrides", False), ("podTemplateOverrides", False), ("runtimePatches", True)],
)
def test_trainjob_spells_its_wishes_as_its_schema_does(spelling, is_integer):
    api = FakeApi(serve=("trainer",))
    api.server.trainer = spelling
    facts = read_facts(api)
    assert (facts.trainer, facts.trainer_num_proc_is_integer) == (spelling, is_integer)
    assert "trainer.kubeflow.org/v1alpha1/trainjobs" in facts.served


def test_plain_cluster_has_jobs_and_nothing_else():
    facts = read_facts(FakeApi())
    assert "batch/v1/jobs" in facts.served
    assert (facts.version, facts.trainer, facts.kueue, facts.jobset) == ("1.34", None, False, False)


def test_queues_and_topologies_of_kueue_are_known():
    api = FakeApi(serve=("kueue",))
    version = {"apiVersion": "kueue.x-k8s.io/v1beta2"}
    queue = {**version, "kind": "LocalQueue", "metadata": {"name": "shared"}, "spec": {"clusterQueue": "gpus"}}
    topology = {**version, "kind": "Topology", "metadata": {"name": "racks"}, "spec": {}}
    api.create("/apis/kueue.x-k8s.io/v1beta2/namespaces/gangs/localqueues", queue)
    api.create("/apis/kueue.x-k8s.io/v1beta2/topologies", topology)
    facts = read_facts(api)
    assert (facts.queues, facts.topologies) == ({"shared": "gpus"}, ("racks",))


@pytest.mark.parametrize(
    ("flavors", "levels"),
    [
        ({"h200": "racks"}, {"shared": ("block", "rack", "host")}),
        ({"h200": "racks", "a100": "rows"}, {"shared": ("rack", "host")}),
        ({"h200": "racks", "plain": None}, {}),
        ({"h200": "racks", "gone": "missing"}, {}),
    ],
    ids=["one flavor", "what both have", "a flavor without a topology", "a topology that is not there"],
)
def test_levels_of_a_queue_are_those_that_all_its_flavors_have(flavors, levels):
    api = FakeApi(serve=("kueue",))
    kueue = "/apis/kueue.x-k8s.io/v1beta2"

    def make(kind, plural, name, spec):
        body = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": {"name": name}, "spec": spec}
        api.create(f"{kueue}/{plural}", body)

    for name, labels in {"racks": ("block", "rack", "host"), "rows": ("row", "rack", "host")}.items():
        make("Topology", "topologies", name, {"levels": [{"nodeLabel": label} for label in labels]})
    for name, topology in flavors.items():
        make("ResourceFlavor", "resourceflavors", name, {"topologyName": topology} if topology else {})
    make(
        "ClusterQueue", "clusterqueues", "gpus", {"resourceGroups": [{"flavors": [{"name": name} for name in flavors]}]}
    )
    make("LocalQueue", "namespaces/gangs/localqueues", "shared", {"clusterQueue": "gpus"})
    assert read_facts(api).levels == levels
    api.server.denied.add(("get", "resourceflavors.kueue.x-k8s.io"))
    assert read_facts(api).levels == {}


@pytest.mark.parametrize(("age_seconds", "placed"), [(1, True), (60, False)])
def test_placer_is_there_while_it_renews_its_lease(age_seconds, placed):
    api = FakeApi()
    renewed = f"{NOW - timedelta(seconds=age_seconds):%Y-%m-%dT%H:%M:%S.%fZ}"
    spec = {"holderIdentity": "p", "leaseDurationSeconds": 15, "renewTime": renewed}
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "gangline-placer"}}
    api.create("/apis/coordination.k8s.io/v1/namespaces/gangs/leases", {**lease, "spec": spec})
    assert read_facts(api, now=lambda: NOW).placer is placed


def test_account_that_may_see_little_gets_modest_facts():
    api = FakeApi(serve=("kueue",))
    for resource in ("priorityclasses.scheduling.k8s.io", "topologies.kueue.x-k8s.io", "localqueues.kueue.x-k8s.io"):
        api.server.denied.add(("list", resource))
    api.server.denied.add(("get", "leases.coordination.k8s.io"))
    facts = read_facts(api)
    assert (facts.topologies, facts.queues, facts.priority_classes, facts.placer) == ((), {}, (), False)


def test_facts_survive_a_file_and_another_file_is_refused():
    facts = read_facts(FakeApi(serve=("trainer", "kueue")))
    assert ClusterFacts.from_json(facts.to_json()) == facts
    with pytest.raises(IntegrityError, match="Facts"):
        ClusterFacts.from_json(b'{"schema": 1, "surprise": 2}')


def test_missing_rights_are_named_and_those_of_kinds_not_served_are_not_missed():
    api = FakeApi()
    assert missing_rights(api) == []
    api.server.denied |= {("create", "jobs.batch"), ("delete", "pods")}
    assert missing_rights(api) == ["create jobs.batch", "delete pods"]


def test_right_on_a_kind_that_is_served_is_missed():
    api = FakeApi(serve=("trainer",))
    api.server.denied.add(("create", "trainjobs.trainer.kubeflow.org"))
    assert missing_rights(api) == ["create trainjobs.trainer.kubeflow.org"]


def test_driver_that_is_to_place_gangs_learns_what_it_lacks():
    api = FakeApi()
    assert missing_rights(api, wanted=SELF_PLACER) + missing_in_cluster(api, wanted=PLACER_CLUSTER) == []
    api.server.denied |= {("patch", "jobs.batch/status"), ("patch", "pods"), ("list", "nodes")}
    assert missing_rights(api, wanted=SELF_PLACER) == ["patch jobs.batch/status", "patch pods"]
    assert missing_in_cluster(api, wanted=PLACER_CLUSTER) == ["list nodes of the cluster"]
