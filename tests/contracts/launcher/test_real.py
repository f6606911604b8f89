"""What only a real cluster shows: pods that are taken, deleted or placed together, and what is left of them."""

import os
import subprocess
import sys
import time
from datetime import UTC, datetime

import pytest
from tests.cluster.faults.proxy.proxy import ApiFaultProxy
from tests.cluster.faults.proxy.rules import HttpRule
from tests.contracts.launcher.crashing import Crashing, Killed
from tests.contracts.launcher.gangs import HEAD, SAVER, SLEEPER, STEPPER, poll
from tests.contracts.launcher.stands import ClusterStand

from gangline.launch.kubernetes.client.client import connect
from gangline.launch.kubernetes.cluster.facts import read_facts
from gangline.launch.kubernetes.state.roots import find_root, root_kinds
from gangline.spec.config.site import LaunchTable
from gangline.spec.gang.podset import Resources

pytestmark = pytest.mark.cluster
PATIENCE_SECONDS = 120.0


@pytest.fixture(params=["job", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("jobset", "trainjob"))])
def stand(request, tmp_path, cluster):
    cluster.demand(request.param)
    namespace = cluster.namespace(request.node.name)
    made = ClusterStand(tmp_path, cluster, namespace, kind=request.param)
    yield made
    made.close()
    cluster.delete(namespace)


def is_running(stand, name="run-1"):
    return stand.launcher.status(name).state == "running"


def pods(stand, name="run-1"):
    return stand.api.items(f"/api/v1/namespaces/{stand.api.namespace}/pods", labels=f"gangline/gang={name}")[0]


@pytest.mark.row("K4")
@pytest.mark.parametrize("how", ["evicted", "deleted"])
def test_pod_that_is_taken_is_replaced_and_the_gang_is_not_charged(stand, how):
    stand.launcher.submit(stand.podset(SAVER))
    poll(lambda: is_running(stand), PATIENCE_SECONDS)
    (first,) = pods(stand)
    path = f"/api/v1/namespaces/{stand.api.namespace}/pods/{first['metadata']['name']}"
    if how == "evicted":
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": first["metadata"]["name"]}}
        stand.api.create(f"{path}/eviction", eviction)
    else:
        stand.api.delete(path)
    poll(lambda: [pod for pod in pods(stand) if pod["metadata"]["uid"] != first["metadata"]["uid"]], PATIENCE_SECONDS)
    poll(lambda: is_running(stand), PATIENCE_SECONDS)
    assert stand.launcher.status("run-1").restarts == 0
    stand.launcher.cancel("run-1", reason="seen")
    assert stand.leftovers("run-1") == []


@pytest.mark.row("K4")
def test_gang_that_its_queue_suspends_continues_under_the_same_root(stand):
    """As Kueue preempts, drains a queue, or puts a gang back: its root is suspended, and resumed some time later."""
    gang = stand.launcher.submit(stand.podset(SAVER))
    poll(lambda: is_running(stand), PATIENCE_SECONDS)
    root = find_root(stand.api, "run-1", root_kinds(LaunchTable(launcher=stand.kind), read_facts(stand.api)))
    for _ in range(2):
        stand.api.patch(root.path, {"spec": {"suspend": True}})
        poll(lambda: not pods(stand), PATIENCE_SECONDS)
        assert stand.launcher.status("run-1").state == "waiting"
        stand.api.patch(root.path, {"spec": {"suspend": False}})
        poll(lambda: is_running(stand), PATIENCE_SECONDS)
    assert stand.api.get(root.path)["metadata"]["uid"] == gang.uid
    assert stand.launcher.status("run-1").restarts == 0
    stand.launcher.cancel("run-1", reason="seen")
    assert stand.leftovers("run-1") == []


def test_memory_limit_is_reported_as_out_of_memory(stand):
    program = HEAD + "hoard = []\nwhile True: hoard.append(bytearray(2**24)); hoard[-1][::4096] = b'x' * 4096"
    small = Resources(cpus=0.5, memory_bytes=2**28, shm_bytes=2**24)
    stand.launcher.submit(stand.podset(program, ranks=1, restarts=0, resources=small))
    end = list(stand.launcher.follow("run-1"))[-1].end
    assert (end.exit_code, end.retry) == (32, "changed"), end


def test_gang_of_two_pods_is_placed_by_its_own_follower_and_runs(stand):
    small = Resources(cpus=0.2, memory_bytes=2**28, shm_bytes=2**24)
    podset = stand.podset(STEPPER, num_nodes=2, procs_per_node=1, resources=small)
    stand.launcher.submit(podset)
    events = list(stand.launcher.follow("run-1"))
    assert events[-1].end.exit_code == 0, [(event.kind, event.text) for event in events if event.kind != "progress"]
    assert {event.data["rank"] for event in events if event.kind == "progress"} == {0, 1}
    states = [event.status for event in events if event.kind == "state"]
    assert any(len(status.servers) == 2 for status in states)
    assert {line.rank for line in stand.launcher.logs("run-1", ranks=None)} == {0, 1}


@pytest.mark.slow
def test_image_that_no_one_has_says_so_within_seconds(stand):
    image = stand.podset(SLEEPER).image.partition("@")[0] + "@sha256:" + "0" * 64
    stand.launcher.submit(stand.podset(SLEEPER, image=image))
    started = time.monotonic()
    said = [event for event in stand.launcher.follow("run-1") if event.kind in ("waiting", "end")]
    assert "image" in said[-2].text, said
    assert said[-1].end.exit_code == 10
    assert time.monotonic() - started < PATIENCE_SECONDS
    assert stand.leftovers("run-1") == []


@pytest.mark.row("I4")
def test_ended_run_has_nothing_left_after_a_sweep(stand):
    stand.launcher.submit(stand.podset(STEPPER))
    assert list(stand.launcher.follow("run-1"))[-1].end.exit_code == 0
    stand.launcher.sweep(now=datetime.now(UTC), life=lambda _: "ended")
    poll(lambda: stand.leftovers("run-1") == [], 60.0)
    assert stand.launcher.status("run-1").state == "absent"


@pytest.fixture
def proxy(cluster, tmp_path):
    with ApiFaultProxy(cluster.kubeconfig, tmp_path) as each:
        yield each


def through(stand, proxy):
    """A driver that reaches the server by the proxy."""
    environ = {**os.environ, "KUBECONFIG": str(proxy.kubeconfig)}
    return stand.over(connect(environ, namespace=stand.api.namespace, deadline_seconds=10.0))


@pytest.mark.row("K2")
def test_lost_answers_start_no_second_gang(stand, proxy):
    driver = through(stand, proxy)
    proxy.book.set(HttpRule(action="lose_answer", method="POST", probability=0.5))
    for count in range(10):
        podset = waiting_gang(stand, f"run-{count}")
        first = driver.submit(podset)
        assert stand.again().submit(podset).uid == first.uid
    assert proxy.book.strikes
    roots = stand.api.items(stand.roots_path)[0]
    assert len(roots) == 10
    assert all("gangline/queued" in root["metadata"]["annotations"] for root in roots)
    assert {each.deleted for each in stand.launcher.sweep(now=datetime.now(UTC), life=lambda _: "ended")} == {True}


@pytest.mark.row("K7")
def test_server_that_is_away_stops_no_training(stand, proxy):
    steps = HEAD + "for number in range(60): step(number) or time.sleep(0.5)"
    stand.launcher.submit(stand.podset(steps))
    events = through(stand, proxy).follow("run-1")
    seen = [next(event for event in events if event.status and event.status.state == "running")]
    proxy.book.set(HttpRule(action="answer", status=503))
    proxy.cut_connections()
    for event in events:
        seen.append(event)
        if event.status is not None and event.status.stale_seconds:
            proxy.book.set()
    assert any(event.status and event.status.stale_seconds for event in seen)
    assert {event.status.state for event in seen if event.status and event.status.stale_seconds} <= {"running"}
    steps_seen = [event.data["step"] for event in seen if event.kind == "progress" and event.data["rank"] == 0]
    assert steps_seen == list(range(60))
    assert seen[-1].end.exit_code == 0


DRIVER = """
import sys
from pathlib import Path
from gangline.launch.kubernetes.client.client import connect
from gangline.launch.kubernetes.cluster.facts import read_facts
from gangline.launch.kubernetes.state.roots import find_root, root_kinds
from gangline.launch.kubernetes.cluster.facts import read_facts
from gangline.launch.kubernetes.launcher import KubernetesLauncher
from gangline.spec.gang.podset import PodSet
from gangline.spec.config.site import LaunchTable, PodTable
kubeconfig, namespace, podset, pull, kind = sys.argv[1:]
api = connect({"KUBECONFIG": kubeconfig}, namespace=namespace)
launcher = KubernetesLauncher(
    api, facts=read_facts(api), launch=LaunchTable(target="kubernetes", launcher=kind, namespace=namespace),
    pod=PodTable(pull=pull), secrets=lambda name: sys.stdin.readline().strip().encode(),
)
launcher.submit(PodSet.from_json(Path(podset).read_bytes()))
for event in launcher.follow("run-1"):
    print(event.kind, flush=True)
"""


@pytest.mark.row("C6")
def test_driver_that_is_killed_is_followed_by_another_at_once(stand, tmp_path):
    podset = stand.podset(HEAD + "for number in range(40): step(number) or time.sleep(0.5)")
    (tmp_path / "podset.json").write_bytes(podset.to_json())
    pull = "Never" if stand.is_own else "IfNotPresent"
    command = [sys.executable, "-c", DRIVER, str(stand.kubeconfig), stand.api.namespace, str(tmp_path / "podset.json")]
    with subprocess.Popen(
        [*command, pull, stand.kind], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as driver:
        driver.stdin.write("".join(f"{stand.secret(name).decode()}\n" for name in podset.secrets))
        driver.stdin.close()
        while "progress" not in driver.stdout.readline():
            assert driver.poll() is None
        driver.kill()
    started = time.monotonic()
    assert stand.launcher.submit(podset).adopted
    assert time.monotonic() - started <= 15
    events = list(stand.launcher.follow("run-1"))
    assert [event.data["step"] for event in events if event.kind == "progress" and event.data["rank"] == 0] == [
        *range(40)
    ]
    assert events[-1].end.exit_code == 0
    assert len(pods(stand)) == 1


@pytest.mark.row("C1")
@pytest.mark.parametrize("when", ["before", "after"])
def test_submit_that_dies_at_any_write_is_completed_by_the_next(stand, when):
    path = stand.roots_path
    whole = Crashing(stand.api)
    stand.over(whole).submit(waiting_gang(stand, "whole"))
    wanted = written(stand, "whole")
    writes = len(set(whole.writes))  # Trainer's webhook may refuse a TrainJob until it knows its runtime
    for point in range(writes):
        podset = waiting_gang(stand, f"run-{point}")
        with pytest.raises(Killed):
            stand.over(Crashing(stand.api, point=point, when=when)).submit(podset)
        root = stand.api.get(f"{path}/{podset.name}")
        is_last = point == writes - 1 and when == "after"
        assert root is None or root["spec"]["suspend"]
        assert is_last or root is None or "gangline/queued" not in root["metadata"]["annotations"]
        gang = stand.launcher.submit(podset)
        assert root is None or root["metadata"]["uid"] == gang.uid
        assert written(stand, podset.name) == [each.replace("whole", podset.name) for each in wanted]
    assert len(stand.api.items(path)[0]) == writes + 1
    stand.launcher.sweep(now=datetime.now(UTC), life=lambda _: "ended")


def written(stand, name):
    """What a driver wrote around a root; a Job below another root is its controller's, and comes later."""
    return sorted(each for each in stand.leftovers(name) if not each.startswith("job.batch/") or stand.kind == "job")


def waiting_gang(stand, name):
    """Of several pods, and nobody places it: it never runs."""
    return stand.podset(SLEEPER, name, num_nodes=2, procs_per_node=1)
