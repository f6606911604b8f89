"""Pods of a running gang that are evicted or vanish: keepers in the others hold their places for the replacement."""

import json

import pytest
from tests.contracts.launcher.gangs import HEAD
from tests.contracts.launcher.stands import ClusterStand

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

SAVER = HEAD + (
    "tell('started', gang=os.environ['GANGLINE_GANG'])\n"
    "signal.signal(15, lambda *_: (tell('saved', step=1), end(143))); step(0)\n"
    "while generation == 0: time.sleep(0.05)"
)


@pytest.fixture
def stand(cluster, tmp_path, request):
    namespace = cluster.namespace(request.node.name[:24])
    made = ClusterStand(tmp_path, cluster, namespace)
    yield made
    made.close()
    cluster.delete(namespace)


def pods_of(cluster, stand, index):
    label = f"batch.kubernetes.io/job-completion-index={index}"
    return cluster.read("pods", "-n", stand._namespace, "-l", label)["items"]


def evict(cluster, stand, index):
    [pod] = pods_of(cluster, stand, index)
    name, namespace = pod["metadata"]["name"], stand._namespace
    wish = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": namespace}}
    path = f"/api/v1/namespaces/{namespace}/pods/{name}/eviction"
    cluster.kubectl.run("create", "--raw", path, "-f", "-", feed=json.dumps(wish))


@pytest.mark.row("K4")
@pytest.mark.parametrize("index", [0, 1], ids=["leader", "follower"])
def test_evicted_pod_lets_all_save_and_its_replacement_continues_for_free(cluster, stand, index):
    stand.launcher.submit(stand.podset(SAVER, num_nodes=2, procs_per_node=1, restarts=0))
    events = stand.launcher.follow("run-1")
    stepping = set()
    while stepping != {0, 1}:
        event = next(events)
        if event.data.get("event") == "step":
            stepping.add(event.data["rank"])
    evict(cluster, stand, index)
    end = next(event.end for event in events if event.end is not None)
    assert (end.exit_code, end.generation, end.restarts) == (0, 1, 1), end
    saved = [stored_events(stand, rank, "saved") for rank in (0, 1)]
    assert saved == [1, 1], "each rank saved once, also the one whose pod is gone"


def stored_events(stand, rank, kind):
    data = stand.store.get(f"runs/p/c/run-1/ranks/{rank}.jsonl").data
    return [json.loads(line)["event"] for line in data.splitlines()].count(kind)
