"""What Kueue answers a gang, in its published forms, and what a follower makes of it."""

import pytest
from tests.cluster.fake.api import FakeApi
from tests.cluster.fake.controllers import JobController
from tests.cluster.fake.kubelet import FakeKubelet
from tests.contracts.launcher.stands import IMAGE, STORE

from gangline.launch.kubernetes.cluster.facts import read_facts
from gangline.launch.kubernetes.launcher import KubernetesLauncher
from gangline.launch.kubernetes.placement.kueue_admission import assignment, off_flavor
from gangline.spec.config.site import LaunchTable, PodTable
from gangline.spec.gang.podset import PodSet, Resources

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


def workload(reported, owner="g"):
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
        "status": {"admission": {"podSetAssignments": [{"name": "main", "topologyAssignment": reported}]}},
    }


@pytest.mark.parametrize("reported", [BETA_1, BETA_2], ids=["v1beta1", "v1beta2"])
def test_both_forms_of_an_assignment_are_read_in_node_rank_order(reported):
    found = assignment(workload(reported))
    assert [(s.name, s.group, s.block) for s in found] == [
        ("x1", "r1", "b1"), ("x1", "r1", "b1"), ("x9", "r2", "b1"),
    ]  # fmt: skip


def test_one_count_for_all_domains_is_read():
    reported = {"levels": ["kubernetes.io/hostname"], "slices": [
        {"domainCount": 2, "valuesPerLevel": [{"individual": {"roots": ["a", "b"]}}], "podCounts": {"universal": 1}},
    ]}  # fmt: skip
    assert [server.name for server in assignment(workload(reported))] == ["a", "b"]


@pytest.mark.parametrize(
    "given",
    [{"metadata": {"name": "w"}}, workload({"levels": ["rack"], "domains": [{"values": ["r1"], "count": 1}]})],
    ids=["before admission", "no servers named"],
)
def test_what_names_no_servers_is_not_a_placement(given):
    assert assignment(given) == ()


def test_pod_without_the_labels_of_its_flavor_is_named():
    pod = {"metadata": {"name": "g-0"}, "spec": {"nodeSelector": {"gpu": "h200"}}}
    assert off_flavor([pod], {"gpu": "h200"}) == ""
    assert off_flavor([pod], {"gpu": "a100"}).startswith("pod g-0: wanted the node selector {'gpu': 'a100'} of its")


JOBS = "/apis/batch/v1/namespaces/gangs/jobs"
KUEUE = "kueue.x-k8s.io/v1beta1"
HOST = "kubernetes.io/hostname"


class Queue:
    """Kueue as far as a follower sees it: admits one Job, with the labels of its flavor or without."""

    def __init__(self, *, selector, reported):
        self.api = FakeApi(serve=("kueue",))
        self.jobs = JobController(self.api)
        self.nodes = FakeKubelet(self.api.server, nodes=("x1", "x9"), auto=False)
        self.selector, self.reported = selector, reported
        kinds = (("LocalQueue", "namespaces/gangs/localqueues", "shared", {"clusterQueue": "gpus"}),
                 ("ResourceFlavor", "resourceflavors", "h200", {"nodeLabels": {"gpu": "h200"}}))  # fmt: skip
        for kind, path, name, spec in kinds:
            body = {"apiVersion": KUEUE, "kind": kind, "metadata": {"name": name}, "spec": spec}
            self.api.create(f"/apis/{KUEUE}/{path}", body)

    def launcher(self):
        launch = LaunchTable(target="kubernetes", launcher="job", route="kueue")
        facts = read_facts(self.api)
        return KubernetesLauncher(self.api, facts=facts, launch=launch, pod=PodTable(), secrets=lambda name: b"value")

    def admit(self):
        uid = self.api.get(f"{JOBS}/g")["metadata"]["uid"]
        body = workload(self.reported)
        body["metadata"]["labels"] = {"kueue.x-k8s.io/job-uid": uid}
        body["status"]["admission"]["podSetAssignments"][0]["flavors"] = {"nvidia.com/gpu": "h200"}
        body["status"]["conditions"] = [{"type": "Admitted", "status": "True"}]
        self.api.server.write(("workloads.kueue.x-k8s.io", "gangs", "job-g-1"), body)
        template = {"spec": {"template": {"spec": {"nodeSelector": self.selector}}}}
        self.api.patch(f"{JOBS}/g", template)
        self.api.patch(f"{JOBS}/g", {"spec": {"suspend": False}})
        self.jobs.step()

    def pods(self):
        return self.api.items("/api/v1/namespaces/gangs/pods")[0]


def podset():
    return PodSet(
        name="g", run="g", project="p", commit="c" * 40, num_nodes=3, procs_per_node=1, image=IMAGE, store=STORE,
        code="blobs/sha256/aa", plan="blobs/sha256/bb", resources=Resources(cpus=1.0, memory_bytes=2**20),
    )  # fmt: skip


def test_gang_knows_its_servers_as_soon_as_kueue_has_assigned_them():
    queue = Queue(selector={"gpu": "h200"}, reported=BETA_1)
    driver = queue.launcher()
    driver.submit(podset())
    events = driver.follow("g")
    assert next(each for each in events if each.kind == "waiting").text.startswith("suspended")
    queue.admit()
    found = next(each.status for each in events if each.status and each.status.servers)
    assert (found.state, found.servers) == ("starting", ("x1", "x1", "x9"))
    for pod in queue.pods():
        queue.nodes.run(pod["metadata"]["name"], node="x9")
    found = next(each.status for each in events if each.status and each.status.state == "running")
    assert found.servers == ("x9", "x9", "x9"), "where they are goes before where they were sent"


def test_gang_whose_pods_lost_the_labels_of_their_flavor_is_stopped():
    queue = Queue(selector={}, reported=None)
    driver = queue.launcher()
    driver.submit(podset())
    queue.api.idle.append(queue.jobs.step)
    queue.api.hooks.append(lambda _, proceed: (queue.jobs.step(), proceed())[-1])  # the cluster goes on
    queue.admit()
    end = list(driver.follow("g"))[-1].end
    assert (end.exit_code, end.retry) == (10, "never")
    assert "can never start: pod g-" in end.reason
    assert "this Kueue does not support this Trainer" in end.reason
    assert queue.pods() == []
