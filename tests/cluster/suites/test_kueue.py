"""Gangs in queues of the real Kueue: admitted, refused for good, put back for a graver one and resumed.

A Topology is in the cluster all the while, behind a queue of its own, as on a cluster that others share.
"""

import json
import threading
import time
from contextlib import ExitStack
from itertools import groupby

import pytest
from tests.cluster.driver import driving
from tests.cluster.rig.wait import await_true
from tests.cluster.workspace import Workspace, short_line, site_of
from tests.contracts.launcher.gangs import HEAD, SLEEPER, STEPPER
from tests.contracts.launcher.stands import ClusterStand
from tests.line.repositories import commit, line_with

from gangline.launch.kubernetes.placement.kueue_admission import admission
from gangline.spec.gang.podset import Resources

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(400)]
SMALL = Resources(cpus=0.2, memory_bytes=2**28, shm_bytes=2**24)
PACED = HEAD + "[step(number) or time.sleep(1) for number in range(15)]; print('done', rank)"
LEVEL = "kubernetes.io/hostname"
FINAL_SECONDS = 30.0
OF_GANGS = {"matchLabels": {"gangline/gangs": "true"}}
OF_OTHERS = {"matchLabels": {"gangline/gangs": "elsewhere"}}


@pytest.fixture(scope="module")
def kueue(cluster):
    """A cluster with Kueue and a Topology."""
    with cluster.lend_kueue():
        topology = thing("Topology", "gangline-test-elsewhere", {"levels": [{"nodeLabel": LEVEL}]})
        flavors = [
            thing("ResourceFlavor", "gangline-test-plain", {}),
            thing(
                "ResourceFlavor",
                "gangline-test-racks",
                {"topologyName": "gangline-test-elsewhere", "nodeLabels": {"kubernetes.io/os": "linux"}},
            ),
        ]
        made = [topology, *flavors]
        cluster.kubectl.apply(made)
        yield cluster
        delete(cluster, made)


@pytest.fixture
def queue(kueue, request, tmp_path):
    """Makes a queue `gangs` in a namespace of its own, which it returns."""
    with ExitStack() as made:
        namespace = kueue.namespace(f"kueue-{request.node.name}")

        def open_queue(**options):
            options = {"flavor": "gangline-test-plain", "selector": OF_GANGS, "covered": ("cpu", "memory")} | options
            cluster_queue = thing("ClusterQueue", f"of-{namespace}", cluster_queue_spec(**options))
            local = thing("LocalQueue", "gangs", {"clusterQueue": f"of-{namespace}"}, namespace=namespace)
            kueue.kubectl.apply([cluster_queue, local])
            made.callback(delete, kueue, [local, cluster_queue])
            await_true("the queue", lambda: is_active(kueue, f"of-{namespace}"), seconds=30)
            return namespace

        yield open_queue
        kueue.kubectl.run("delete", "jobs", "--all", "-n", namespace)
    kueue.delete(namespace)


@pytest.fixture
def stand(kueue, queue, tmp_path):
    """Makes a queue, and opens what drives gangs through it."""
    return lambda **options: ClusterStand(tmp_path, kueue, queue(**options))


def thing(kind, name, spec, *, namespace=None):
    place = {} if namespace is None else {"namespace": namespace}
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": {"name": name, **place}, "spec": spec,
    }  # fmt: skip


def cluster_queue_spec(*, flavor, selector, covered, cpus="2"):
    quotas = {"cpu": cpus, "memory": "8Gi"}
    resources = [{"name": name, "nominalQuota": quotas[name]} for name in covered]
    flavors = [{"name": flavor, "resources": resources}]
    return {
        "namespaceSelector": selector,
        "resourceGroups": [{"coveredResources": list(covered), "flavors": flavors}],
        "preemption": {"withinClusterQueue": "LowerPriority"},
    }


def delete(cluster, things):
    reported = {"apiVersion": "v1", "kind": "List", "items": things}
    cluster.kubectl.run("delete", "--ignore-not-found", "--timeout=60s", "-f", "-", feed=json.dumps(reported))


def is_active(cluster, name):
    conditions = cluster.read("clusterqueue", name).get("status", {}).get("conditions", ())
    return any(each["type"] == "Active" and each["status"] == "True" for each in conditions)


def pair(stand, program, name, **changes):
    wishes = {"num_nodes": 2, "procs_per_node": 1, "resources": SMALL, "queue": "gangs"}
    return stand.podset(program, name, **wishes | changes)


def workloads(stand):
    found, _ = stand.api.items(f"/apis/kueue.x-k8s.io/v1beta2/namespaces/{stand.api.namespace}/workloads")
    return found


def said(events):
    return [(each.kind, each.text) for each in events if each.kind != "progress"]


def test_gang_of_a_queue_without_a_topology_runs_on_its_plain_flavor_though_a_topology_is_elsewhere(stand):
    here = stand()
    here.launcher.submit(pair(here, STEPPER, "plain"))
    events = list(here.launcher.follow("plain"))
    assert events[-1].end.exit_code == 0, said(events)
    (workload,) = workloads(here)
    assert admission(workload) is not None
    flavors = workload["status"]["admission"]["podSetAssignments"][0]["flavors"]
    assert set(flavors.values()) == {"gangline-test-plain"}


def test_gang_of_a_queue_with_a_topology_asks_for_its_level_and_runs_where_kueue_placed_it(stand, kueue):
    here = stand(flavor="gangline-test-racks")
    here.launcher.submit(pair(here, STEPPER, "placed"))
    events = list(here.launcher.follow("placed"))
    assert events[-1].end.exit_code == 0, said(events)
    (workload,) = workloads(here)
    (podset,) = workload["spec"]["podSets"]
    assert podset["topologyRequest"]["preferred"] == LEVEL
    placed = [each.status for each in events if each.status is not None and each.status.placed]
    assert placed
    assert [server.name for server in placed[-1].placed] == list(placed[-1].servers)
    assert set(placed[-1].servers) <= {each["metadata"]["name"] for each in kueue.read("nodes")["items"]}


NEVER = {
    "no quota for a resource": ({"covered": ("cpu",)}, {}, "has no quota for memory at all"),
    "too little of a resource": ({"cpus": "300m"}, {}, "can never satisfy it: more cpu"),
    "another namespace": ({"selector": OF_OTHERS}, {}, "takes no gangs of this namespace"),
}


@pytest.mark.parametrize("why", NEVER)
def test_queue_that_can_never_take_a_gang_is_final_after_30_seconds(stand, why):
    options, changes, sentence = NEVER[why]
    here = stand(**options)
    here.launcher.submit(pair(here, SLEEPER, "never", **changes))
    began = time.monotonic()
    reported = list(here.launcher.follow("never"))
    end = reported[-1].end
    assert end.exit_code == 10, said(reported)
    assert sentence in end.reason
    assert time.monotonic() - began >= FINAL_SECONDS


def test_gang_that_a_graver_one_puts_back_resumes_as_the_same_job_and_ends_well(stand):
    here = stand(cpus="450m")
    first = here.launcher.submit(pair(here, PACED, "patient", priority="low"))
    events = here.launcher.follow("patient")
    seen = [next(events)]
    while seen[-1].status is None or seen[-1].status.state != "running":
        assert seen[-1].end is None, said(seen)
        seen.append(next(events))
    other = here.again()
    other.submit(pair(here, STEPPER, "grave", priority="high"))
    assert list(other.follow("grave"))[-1].end.exit_code == 0
    seen += events
    assert seen[-1].end.exit_code == 0, said(seen)
    assert here.again().submit(pair(here, PACED, "patient", priority="low")).uid == first.uid
    assert [each.data["event"] for each in seen if each.text.startswith("evicted by Kueue, eviction 1: ")] == [
        "evicted"
    ]
    states = [state for state, _ in groupby(each.status.state for each in seen if each.status is not None)]
    assert states[: -1 - states[::-1].index("running")].count("stopping") <= 1, states
    put_back = [each for each in workloads(here) if "patient" in each["metadata"]["name"]]
    assert any(each["type"] == "Preempted" for each in put_back[0]["status"]["conditions"]), put_back


@pytest.mark.timeout(900)
def test_record_of_a_line_says_when_its_gang_was_admitted_and_where_it_ran(kueue, queue, tmp_path_factory):
    image = kueue.train_image
    namespace = queue(cpus="4")
    repo, home = short_line(tmp_path_factory.mktemp("bytegpt")), tmp_path_factory.mktemp("home")
    site = site_of(kueue, image, namespace, launch='launcher = "job"\nqueue = "gangs"')
    with driving(kueue):
        record = Workspace(kueue, repo, home, namespace, site).run("pods")
    assert record["run"]["verdict"] == "passed"
    assert record["run"]["created"] < record["gang"]["admitted"]
    assert len(record["gang"]["servers"]) == 2
    assert all(admission(each) is not None for each in kueue.read("workloads", "-n", namespace)["items"])


SHORTER = ("evaluate.seeds=1", "train.steps=6", "prove.replay_steps=0", 'prove.plan="off"')
SEARCH = """
[search]
trials = 8
parallel = 8
pruner = "none"
confirm_seeds = 0
metric = "eval_loss"
[search.space]
"optimizer.elementwise.lr" = { low = 1e-4, high = 1e-2, log = true }
"""


@pytest.mark.row("HS7")
@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_eight_trials_of_two_pods_in_a_quota_for_two_gangs_never_run_three_and_all_end(kueue, queue, tmp_path_factory):
    image, namespace = kueue.train_image, queue(cpus="900m")  # a gang has two pods of 200m
    repo, home = short_line(tmp_path_factory.mktemp("bytegpt")), tmp_path_factory.mktemp("home")
    line = line_with((repo / "line.toml").read_text("utf-8"), *SHORTER)
    commit(repo, {"line.toml": line + SEARCH}, "search")
    site = site_of(kueue, image, namespace, launch='launcher = "job"\nqueue = "gangs"').replace("0.6", "0.2")
    at_once, ended = [], threading.Event()

    def watch():
        while not ended.wait(0.5):
            found = kueue.read("workloads", "-n", namespace)["items"]
            at_once.append(sum(admission(each) is not None and not is_finished(each) for each in found))

    watcher = threading.Thread(target=watch)
    with driving(kueue):
        workspace = Workspace(kueue, repo, home, namespace, site)
        watcher.start()
        try:
            workspace.ask("search", "--repo", str(repo), "--yes", "--json", code=60)  # nobody confirms it
        finally:
            ended.set()
            watcher.join()
        view = json.loads(workspace.ask("search", "show", "--repo", str(repo), "--json"))
        view = json.loads(workspace.ask("search", "show", view[0]["id"], "--repo", str(repo), "--json"))
    assert [each["state"] for each in view["trials"]] == ["ended"] * 8
    assert max(at_once) == 2


def is_finished(workload):
    conditions = workload.get("status", {}).get("conditions", ())
    return any(each["type"] == "Finished" and each["status"] == "True" for each in conditions)
