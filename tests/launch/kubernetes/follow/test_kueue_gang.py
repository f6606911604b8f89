"""A gang in a queue of Kueue, followed: admitted, evicted, admitted again on another flavor, kept within its quota."""

import pytest
from tests.cluster.fake.api import FakeApi
from tests.cluster.fake.controllers import JobController
from tests.cluster.fake.kubelet import FakeKubelet
from tests.contracts.launcher.stands import IMAGE, STORE

from gangline.launch.kubernetes.cluster.facts import read_facts
from gangline.launch.kubernetes.launcher import KubernetesLauncher
from gangline.spec.config.site import LaunchTable, PodTable
from gangline.spec.gang.pod_output import status_line
from gangline.spec.gang.podset import PodSet, Resources
from gangline.spec.gang.status import KeeperStatus

JOBS = "/apis/batch/v1/namespaces/gangs/jobs"
PODS = "/api/v1/namespaces/gangs/pods"
KUEUE = "kueue.x-k8s.io/v1beta2"
HOST, RACK = "kubernetes.io/hostname", "cloud.provider.com/topology-rack"
PREEMPTED = "Preempted to accommodate a workload (UID: 77) due to prioritization in the ClusterQueue"


class Queue:
    """Kueue as far as a follower sees it: it admits one Job on a flavor, and evicts it."""

    def __init__(self):
        self.api = FakeApi(serve=("kueue",))
        self.jobs = JobController(self.api)
        self.nodes = FakeKubelet(self.api.server, nodes=("x1", "x9"), auto=False)
        for name, rack in {"x1": "r1", "x9": "r2"}.items():
            self.api.patch(f"/api/v1/nodes/{name}", {"metadata": {"labels": {RACK: rack}}})
        levels = [{"nodeLabel": label} for label in (RACK, HOST)]
        flavors = {gpu: {"nodeLabels": {"gpu": gpu}, "topologyName": "net"} for gpu in ("h200", "a100")}
        kinds = [
            ("LocalQueue", "namespaces/gangs/localqueues", "shared", {"clusterQueue": "gpus"}),
            ("Topology", "topologies", "net", {"levels": levels}),
            *(("ResourceFlavor", "resourceflavors", gpu, spec) for gpu, spec in flavors.items()),
        ]
        for kind, path, name, spec in kinds:
            body = {"apiVersion": KUEUE, "kind": kind, "metadata": {"name": name}, "spec": spec}
            self.api.create(f"/apis/{KUEUE}/{path}", body)
        self.evictions = 0

    def launcher(self):
        launch = LaunchTable(target="kubernetes", launcher="job", route="kueue")
        facts = read_facts(self.api)
        return KubernetesLauncher(self.api, facts=facts, launch=launch, pod=PodTable(), secrets=lambda name: b"value")

    def goes_on(self):
        """Controllers and kubelet work at every call from now on."""
        self.api.idle.append(self.turn)
        self.api.hooks.append(lambda _, proceed: (self.turn(), proceed())[-1])

    def turn(self):
        self.jobs.step(), self.nodes.step(), self.jobs.step()

    def admit(self, flavor="h200", hosts=("x1", "x1", "x9"), *, selector=None):
        """Resume the Job with the labels of its flavor, or another selector."""
        evicted = {
            "type": "Evicted",
            "status": "False",
            "reason": "QuotaReserved",
            "message": f"Previously: {PREEMPTED}",
        }
        self._write(
            {"podSetAssignments": [{"name": "main", "flavors": {"cpu": flavor}, "topologyAssignment": {
                "levels": [HOST], "slices": [{"domainCount": len(hosts), "podCounts": {"universal": 1},
                                              "valuesPerLevel": [{"individual": {"roots": list(hosts)}}]}]}}]},
            [{"type": "Admitted", "status": "True", "lastTransitionTime": f"2026-11-28T10:0{self.evictions}:00Z"},
             *([evicted] if self.evictions else [])],
        )  # fmt: skip
        template = {"spec": {"nodeSelector": {"gpu": flavor} if selector is None else selector}}
        self.api.patch(f"{JOBS}/g", {"spec": {"template": template}})
        self.api.patch(f"{JOBS}/g", {"spec": {"suspend": False}})
        self.jobs.step()

    def evict(self):
        self.evictions += 1
        self._write(None, [{"type": "Evicted", "status": "True", "reason": "Preempted", "message": PREEMPTED}])
        self.api.patch(f"{JOBS}/g", {"spec": {"suspend": True}})
        self.turn()
        self.api.patch(f"{JOBS}/g/status", {"status": {"startTime": None}})  # else its template is immutable

    def _write(self, admission, conditions):
        uid = self.api.get(f"{JOBS}/g")["metadata"]["uid"]
        labels = {"kueue.x-k8s.io/job-uid": uid}
        status = {"conditions": conditions} | ({"admission": admission} if admission else {})
        if self.evictions:
            status["schedulingStats"] = {"evictions": [{"reason": "Preempted", "count": self.evictions}]}
        body = {
            "apiVersion": KUEUE,
            "kind": "Workload",
            "metadata": {"name": "job-g-1", "uid": "w", "namespace": "gangs", "labels": labels},
        }
        self.api.server.write(
            ("workloads.kueue.x-k8s.io", "gangs", "job-g-1"), body | {"spec": {"queueName": "shared"}, "status": status}
        )

    def pods(self, *phases):
        found = self.api.items(PODS)[0]
        return [pod for pod in found if not phases or pod["status"]["phase"] in phases]

    def run(self):
        """Every pod that was made runs, on the servers of its gang in turn."""
        for pod, node in zip(self.pods("Pending"), ("x1", "x1", "x9"), strict=True):
            self.nodes.run(pod["metadata"]["name"], node=node)

    def report(self, pod, state):
        """A keeper's word in the log of its pod."""
        rank = int(pod["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"])
        status = KeeperStatus(node_rank=rank, pid=1, start_time=1, state=state)
        log = self.api.server.logs.setdefault(("gangs", pod["metadata"]["name"]), [])
        log.append((f"2026-11-28T10:00:{len(log):02}.000000000Z", status_line(status)))


@pytest.fixture
def queue():
    return Queue()


@pytest.fixture
def driver(queue):
    made = queue.launcher()
    made.submit(podset())
    return made


def podset():
    return PodSet(
        name="g", run="g", project="p", commit="c" * 40, num_nodes=3, procs_per_node=1, image=IMAGE, store=STORE,
        code="blobs/sha256/aa", plan="blobs/sha256/bb", resources=Resources(cpus=1.0, memory_bytes=2**20),
    )  # fmt: skip


def until(events, state):
    """Events up to the first state of that name."""
    seen = []
    for event in events:
        seen.append(event)
        assert event.kind != "end", event
        if event.status is not None and event.status.state == state:
            return seen
    raise AssertionError(state)


def test_gang_knows_its_servers_as_soon_as_kueue_has_assigned_them(queue, driver):
    events = driver.follow("g")
    assert next(each for each in events if each.kind == "waiting").text.startswith("suspended")
    queue.admit()
    found = next(each.status for each in events if each.status and each.status.servers)
    assert (found.state, found.servers, found.placed_by) == ("starting", ("x1", "x1", "x9"), "Kueue")
    assert [(server.group, server.block) for server in found.placed] == [("r1", ""), ("r1", ""), ("r2", "")]
    for pod in queue.pods():
        queue.nodes.run(pod["metadata"]["name"], node="x9")
    found = next(each.status for each in events if each.status and each.status.state == "running")
    assert found.servers == ("x9", "x9", "x9"), "where they are goes before where they were sent"


def test_gang_that_is_evicted_and_admitted_on_another_flavor_goes_on(queue, driver):
    """A pod that its kubelet evicted before stays listed, with the selector of the flavor of then."""
    events = driver.follow("g")
    next(events)
    queue.admit("a100")
    queue.run()
    until(events, "running")
    queue.nodes.evict(queue.pods()[0]["metadata"]["name"], reason="TerminationByKubelet")
    queue.turn(), queue.evict()
    seen = until(events, "waiting")
    assert [pod["spec"]["nodeSelector"] for pod in queue.pods("Failed")] == [{"gpu": "a100"}]
    queue.admit("h200")
    queue.run()
    seen += until(events, "running")
    queue.goes_on()
    for pod in queue.pods("Running"):
        queue.nodes.end(pod["metadata"]["name"], 0)
    seen += events
    assert seen[-1].end.exit_code == 0, seen[-1].end
    said = [event.text for event in seen if event.data.get("event") == "evicted"]
    assert said == [f"evicted by Kueue, eviction 1: {PREEMPTED}"]


def test_gang_that_resumes_is_starting_until_its_own_pods_say_otherwise(queue, driver):
    events = driver.follow("g")
    next(events)
    queue.admit()
    queue.run()
    until(events, "running")
    for pod in queue.pods():
        queue.report(pod, "ended")
    until(events, "stopping")
    queue.evict()
    until(events, "waiting")
    queue.admit()
    for pod, node in zip(queue.pods("Pending"), ("x1", "x1", "x9"), strict=True):
        queue.nodes.run(pod["metadata"]["name"], node=node, ready=False)
    assert {event.status.state for event in until(events, "starting") if event.status} == {"starting"}
    for pod in queue.pods("Running"):
        queue.nodes.run(pod["metadata"]["name"])
    assert "stopping" not in {event.status.state for event in until(events, "running") if event.status}


@pytest.mark.parametrize(
    ("template", "where"),
    [
        ({}, "its Job lacks it, too, so look at what else changes a Job"),
        ({"gpu": "h200"}, "its Job has it, so look at the mutating webhooks for pods"),
    ],
)
def test_gang_whose_pods_lost_the_labels_of_their_flavor_is_stopped(queue, driver, template, where):
    queue.admit(selector={})
    job = queue.api.get(f"{JOBS}/g")
    job["spec"]["template"]["spec"]["nodeSelector"] = template
    queue.api.server.write(("jobs.batch", "gangs", "g"), job)
    queue.goes_on()
    end = list(driver.follow("g"))[-1].end
    assert (end.exit_code, end.retry) == (10, "never")
    assert "can never start: pod g-" in end.reason
    assert where in end.reason
    assert queue.pods() == []
