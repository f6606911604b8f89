"""What is asked for around a gang that waits, and by whom."""

from datetime import UTC, datetime, timedelta

import pytest
from tests.cluster.fake.api import FakeApi
from tests.launch.kubernetes.gangs import NOW

from gangline.launch.kubernetes.cluster.facts import ClusterFacts, VolcanoFacts
from gangline.launch.kubernetes.cluster.rights import DRIVER, READER
from gangline.launch.kubernetes.state.roots import Root
from gangline.launch.kubernetes.waiting import explain
from gangline.launch.kubernetes.waiting.evidence import gather_evidence

GROUP = "kueue.x-k8s.io/v1beta2"
VOLCANO = "/apis/scheduling.volcano.sh/v1beta1"
MISSING = "Can't admit new workloads: references missing ResourceFlavor(s): h200."
FACTS = ClusterFacts(served=(f"{GROUP}/workloads", f"{GROUP}/clusterqueues"), queues={"shared": "team-a"})
ROOT = Root(
    "/apis/batch/v1/namespaces/gangs/jobs/g", {"metadata": {"name": "g", "uid": "u"}, "spec": {"suspend": True}}
)


def written(api, kind, name, namespace, **body):
    metadata = {"name": name, "namespace": namespace, "labels": body.pop("labels", {})}
    full = {"apiVersion": GROUP, "kind": kind.title(), "metadata": metadata, **body}
    api.server.write((f"{kind}s.kueue.x-k8s.io", namespace, name), full)


def condition(kind, reason, message):
    at = NOW.isoformat()
    reported = {"type": kind, "status": "False", "reason": reason, "message": message, "lastTransitionTime": at}
    return {"conditions": [reported]}


@pytest.fixture
def api():
    made = FakeApi(serve=("kueue",))
    inactive = condition("QuotaReserved", "Inadmissible", "ClusterQueue team-a is inactive")
    labels = {"kueue.x-k8s.io/job-uid": "u"}
    written(made, "workload", "job-g", "gangs", labels=labels, spec={"queueName": "shared"}, status=inactive)
    written(made, "clusterqueue", "team-a", "", status=condition("Active", "FlavorNotFound", MISSING))
    return made


def kind_of(api):
    return explain(gather_evidence(api, ROOT, [], num_nodes=2, facts=FACTS)).kind


def test_queue_that_is_inactive_is_asked_why_by_those_who_may(api):
    assert kind_of(FakeApi(server=api.server, rights=(*DRIVER, *READER))) == "queue-broken"
    assert kind_of(FakeApi(server=api.server, rights=DRIVER)) == "queue-inactive"


@pytest.fixture
def volcano():
    """A gang that Volcano has not let in for its quota, as another of that name was not for what all ask for."""
    made = FakeApi(serve=("volcano",))
    group = {"metadata": {"name": "g"}, "spec": {"queue": "gpus"}, "status": {"phase": "Pending"}}
    written = made.create(f"{VOLCANO}/namespaces/gangs/podgroups", head("PodGroup") | group)
    queue = {"metadata": {"name": "gpus"}, "spec": {}}
    made.create(f"{VOLCANO}/queues", head("Queue") | queue)
    made.create(f"{VOLCANO}/queues", head("Queue") | {"metadata": {"name": "others"}})
    made.patch(f"{VOLCANO}/queues/gpus/status", {"status": {"state": "Open"}})
    for uid, cause in {written["metadata"]["uid"]: "quota insufficient", "before": "resource in cluster"}.items():
        about = {"kind": "PodGroup", "name": "g", "uid": uid}
        said = {"reason": "Unschedulable", "message": f"{cause} now", "lastTimestamp": datetime.now(UTC).isoformat()}
        event = {"apiVersion": "v1", "kind": "Event", "metadata": {"name": uid}, "involvedObject": about, **said}
        made.create("/api/v1/namespaces/gangs/events", event)
    return made


def head(kind):
    return {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": kind}


WITH_VOLCANO = ClusterFacts(volcano=VolcanoFacts())


def waits_for(server, rights=(*DRIVER, *READER), *, pods=None, facts=WITH_VOLCANO, deep=True):
    api = FakeApi(server=server, rights=rights)
    root = Root(ROOT.path, {"metadata": ROOT.object["metadata"], "spec": {}})
    seen = gather_evidence(api, root, [pending()] if pods is None else pods, num_nodes=1, facts=facts, deep=deep)
    return explain(seen).sentence


def pending(**annotations):
    status = {"phase": "Pending", "conditions": [UNSCHEDULABLE]}
    annotations = annotations or {"scheduling.k8s.io/group-name": "g"}
    return {"metadata": {"name": "p", "uid": "p", "annotations": annotations}, "spec": {}, "status": status}


UNSCHEDULABLE = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "Unschedulable",
    "message": "pod group is not ready",
}


def test_group_of_volcano_is_read_with_its_own_events_and_its_queue(volcano):
    assert waits_for(volcano.server) == "queue gpus has not let it in: quota insufficient now"
    volcano.patch(f"{VOLCANO}/queues/gpus/status", {"status": {"state": "Closed"}})
    assert waits_for(volcano.server).startswith("queue gpus is closed")
    volcano.delete(f"{VOLCANO}/queues/gpus")
    assert waits_for(volcano.server) == "Volcano has no queue gpus; see launch.queue in site.toml"


def test_parts_of_volcano_that_an_account_may_not_read_are_called_unknown(volcano):
    volcano.patch(f"{VOLCANO}/queues/gpus/status", {"status": {"state": "Closed"}})
    assert waits_for(volcano.server, DRIVER) == "queue gpus has not let it in: quota insufficient now"
    none = tuple(each for each in DRIVER if each.resource != "podgroups")
    assert waits_for(volcano.server, none).endswith("in the PodGroup, which this account may not read")


def test_gang_that_is_not_volcanos_and_a_cluster_without_it_are_asked_for_no_group(volcano):
    words = "no server for a pod: pod group is not ready"
    assert waits_for(volcano.server, pods=[pending(other="g")]) == words
    assert waits_for(volcano.server, facts=ClusterFacts()) == words
    assert waits_for(volcano.server, deep=False) == words
    assert waits_for(FakeApi().server) == words, "its kinds were removed since"


def test_group_that_is_gone_is_borne(volcano):
    volcano.delete(f"{VOLCANO}/namespaces/gangs/podgroups/g")
    assert waits_for(volcano.server) == "no server for a pod: pod group is not ready"


def test_holder_is_known_with_the_time_that_its_ranks_have():
    api = FakeApi()
    spec = {"containers": [CONTAINER], "nodeName": "a"}
    for name, body in {"held": spec, "p": {"containers": [CONTAINER]}}.items():
        head = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"gangline/gang": name}}}
        api.create("/api/v1/namespaces/gangs/pods", head | {"spec": body})
    short = UNSCHEDULABLE | {"message": "0/1 nodes are available: 1 Insufficient cpu."}
    waits = {"metadata": {"name": "p", "uid": "p"}, "spec": {"containers": [CONTAINER]}}
    waits |= {"status": {"phase": "Pending", "conditions": [short]}}
    root = Root(ROOT.path, {"metadata": ROOT.object["metadata"] | {"name": "p"}, "spec": {}})
    found = explain(gather_evidence(api, root, [waits], num_nodes=1, facts=ClusterFacts()))
    assert found.holder == "held"
    assert found.until, "without the limit of its ranks nothing says when it ends"


CONTAINER = {
    "name": "node", "image": "x", "resources": {"requests": {"cpu": "1"}},
    "env": [{"name": "OTHER", "value": "1"}, {"name": "GANGLINE_DEADLINE_SECONDS", "value": "3600.0"}],
}  # fmt: skip


JOBSET, TRAINJOB = (
    "jobset.x-k8s.io/v1alpha2/namespaces/gangs/jobsets/g",
    "trainer.kubeflow.org/v1alpha1/namespaces/gangs/trainjobs/g",
)
NO_PODS = ("FailedCreate", "g-node-0", 'Error creating: pods "g-node-0-0-x" is forbidden: no such account')
NO_JOB = ("JobCreationFailed", "g", 'job "g-node-0" creation failed with error: jobs is forbidden: no such account')


@pytest.mark.parametrize(("root", "said"), [(JOBSET, NO_PODS), (TRAINJOB, NO_PODS), (TRAINJOB, NO_JOB)])
def test_controllers_below_the_root_are_asked_why_there_are_no_pods(root, said):
    """A JobSet makes the Job that makes the pods, a TrainJob a JobSet; what an earlier gang met says nothing."""
    made = datetime.now(UTC) - timedelta(minutes=5)
    metadata = {"name": "g", "uid": "u", "creationTimestamp": made.isoformat()}
    root = Root(f"/apis/{root}", {"metadata": metadata, "spec": {}})
    for seconds, reported in ((-60, "0 of 2 pods are created"), (60, "refused: no such account")):
        reason, name, words = said
        body = {"reason": reason, "message": words, "lastTimestamp": (made + timedelta(seconds=seconds)).isoformat()}
        about = {"involvedObject": {"name": name, "uid": "another"}}
        api = FakeApi()
        api.create(
            "/api/v1/namespaces/gangs/events",
            {"apiVersion": "v1", "kind": "Event", "metadata": {"name": "e"}} | about | body,
        )
        seen = gather_evidence(api, root, [], num_nodes=2, facts=ClusterFacts())
        assert explain(seen).sentence == reported
