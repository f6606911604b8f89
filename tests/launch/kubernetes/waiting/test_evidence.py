"""What is asked for around a gang that waits, and by whom."""

import pytest
from tests.cluster.fake.api import FakeApi
from tests.launch.kubernetes.gangs import NOW

from gangline.launch.kubernetes.cluster.facts import ClusterFacts
from gangline.launch.kubernetes.cluster.rights import DRIVER, READER
from gangline.launch.kubernetes.state.roots import Root
from gangline.launch.kubernetes.waiting import explain
from gangline.launch.kubernetes.waiting.evidence import gather_evidence

GROUP = "kueue.x-k8s.io/v1beta1"
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
    told = {"type": kind, "status": "False", "reason": reason, "message": message, "lastTransitionTime": at}
    return {"conditions": [told]}


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
