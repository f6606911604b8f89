"""The placer on a real API server, Job controller and scheduler; its servers are on paper."""

import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from tests.cluster.placement.paper_servers import PODS, PaperServers
from tests.launch.kubernetes.gangs import CPU

from gangline.fabric.placement.order import verify
from gangline.launch.kubernetes.client.client import connect
from gangline.launch.kubernetes.cluster.facts import ClusterFacts
from gangline.launch.kubernetes.objects.render import render
from gangline.launch.kubernetes.objects.render_context import RenderContext
from gangline.launch.kubernetes.placement.placer import Placer
from gangline.launch.kubernetes.state.roots import Root
from gangline.spec.config.site import LaunchTable
from gangline.spec.gang.podset import Placement, Resources, ServerKind

pytestmark = pytest.mark.cluster
PATIENCE_SECONDS = 120.0
ANYWHERE = Placement()


@pytest.fixture
def stand(cluster, namespace):
    api = connect({"KUBECONFIG": str(cluster.kubeconfig)}, namespace=namespace)
    made = Stand(api)
    yield made
    made.close()


class Stand:
    def __init__(self, api):
        self.api = api
        self.servers = PaperServers(api)
        self.placer = Placer(api, holder="test")
        self.later = timedelta()

    def submit(self, name, num_pods, *, placement=ANYWHERE):
        podset = replace(
            CPU, name=name, run=name, num_nodes=num_pods, procs_per_node=1, secrets=(), pool=self.servers.pool,
            resources=Resources(cpus=1, memory_bytes=10**6, shm_bytes=1), deadline_seconds=None,
            placement=placement,
        )  # fmt: skip
        context = RenderContext(
            podset=podset, namespace=self.api.namespace, pod=PODS, launch=LaunchTable(launcher="job"),
            facts=ClusterFacts(), route="gates", now=datetime.now(UTC),
        )  # fmt: skip
        rendered = render(context)
        self.api.create(rendered.root_path, rendered.root)
        self.api.patch(f"{rendered.root_path}/{name}", rendered.release)

    def step(self):
        placed = self.placer.step(datetime.now(UTC) + self.later)
        self.servers.tick()
        return placed

    def until(self, holds):
        """Step until `holds`; fails where it does not come about."""
        end = time.monotonic() + PATIENCE_SECONDS
        while not holds():
            assert time.monotonic() < end, f"does not come about in {PATIENCE_SECONDS:.0f} s: {self.say()}"
            self.step()
            time.sleep(0.1)

    def for_a_while(self, seconds=4.0):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.step()
            time.sleep(0.2)

    def root(self, name):
        return self.api.get(f"/apis/batch/v1/namespaces/{self.api.namespace}/jobs/{name}")

    def waits(self, name):
        return self.root(name)["metadata"]["annotations"].get("gangline/waits", "")

    def pods(self, name):
        return self.api.items(f"/api/v1/namespaces/{self.api.namespace}/pods", labels=f"gangline/gang={name}")[0]

    def bound(self, name):
        """Server by node rank, of pods that live."""
        return {
            int(pod["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"]): pod["spec"]["nodeName"]
            for pod in self.pods(name)
            if pod["spec"].get("nodeName")
            and pod["status"]["phase"] == "Running"
            and "deletionTimestamp" not in pod["metadata"]
        }

    def say(self):
        return [(each["metadata"]["name"], each["spec"], each.get("status")) for each in self.pods("g")][:2]

    def close(self):
        for job in self.api.items(f"/apis/batch/v1/namespaces/{self.api.namespace}/jobs")[0]:
            self.api.delete(f"/apis/batch/v1/namespaces/{self.api.namespace}/jobs/{job['metadata']['name']}")
        end = time.monotonic() + PATIENCE_SECONDS
        while self.servers.pods() and time.monotonic() < end:
            self.servers.tick()
            time.sleep(0.2)
        self.servers.remove_all()


@pytest.mark.row("K6")
def test_with_room_for_three_of_four_pods_none_starts_until_there_is_room(stand):
    first = stand.servers.add(3)
    stand.submit("g", 4)
    stand.for_a_while()
    assert stand.pods("g") == []
    assert "3 pods would fit if all servers of pool" in stand.waits("g")
    more = stand.servers.add(1)
    stand.until(lambda: len(stand.bound("g")) == 4)
    assert stand.bound("g") == dict(enumerate([*first, *more]))
    assert stand.waits("g") == ""


@pytest.mark.row("C6")
def test_of_two_gangs_for_one_place_one_starts_whole_and_the_other_follows(stand):
    stand.servers.add(2)
    stand.submit("g", 2)
    stand.for_a_while(1)
    stand.submit("h", 2)
    stand.until(lambda: len(stand.bound("g")) == 2)
    stand.for_a_while()
    assert stand.pods("h") == []
    assert "g holds 2 servers" in stand.waits("h")
    stand.api.delete(f"/apis/batch/v1/namespaces/{stand.api.namespace}/jobs/g")
    stand.until(lambda: len(stand.bound("h")) == 2)


@pytest.mark.row("K6")
def test_a_server_that_goes_away_before_its_pod_comes_frees_all_others(stand):
    names = stand.servers.add(2)
    stand.submit("g", 2)
    stand.until(lambda: "gangline/servers" in stand.root("g")["metadata"]["annotations"])
    stand.servers.remove(names[1])
    stand.until(lambda: len(stand.bound("g")) == 1)
    stand.later = timedelta(seconds=61)
    stand.until(lambda: stand.root("g")["spec"]["suspend"])
    stand.until(lambda: stand.pods("g") == [])
    assert f"server {names[1]} does not take its pod" in stand.waits("g")
    kinds = {each["type"] for each in stand.root("g")["status"]["conditions"] if each["status"] == "True"}
    assert kinds == {"Suspended"}, "taking pods back is no failure of the Job"
    (third,) = stand.servers.add(1)
    stand.later = timedelta(seconds=120)
    stand.until(lambda: len(stand.bound("g")) == 2)
    assert set(stand.bound("g").values()) == {names[0], third}


@pytest.mark.row("K4")
def test_an_evicted_pod_comes_back_to_its_server_and_no_other_moves(stand):
    stand.servers.add(3)
    stand.submit("g", 2)
    stand.until(lambda: len(stand.bound("g")) == 2)
    before = stand.bound("g")
    stand.for_a_while(1)
    (lost,) = [pod for pod in stand.servers.pods() if pod["spec"]["nodeName"] == before[1]]
    stand.servers.evict(lost)
    stand.until(lambda: len(stand.bound("g")) == 2 and lost["metadata"]["name"] not in _names(stand.pods("g")))
    assert stand.bound("g") == before


def test_pods_stand_where_they_were_placed_groups_one_after_the_other_and_tiles_whole(stand):
    first, second, third, fourth = (stand.servers.add(1, group=group)[0] for group in ("g1", "g2", "g1", "g2"))
    stand.servers.add(1, group="g3")  # its one server holds no tile
    stand.submit("g", 4, placement=Placement(tile=2))
    stand.until(lambda: len(stand.bound("g")) == 4)
    placed = Root("", stand.root("g")).placed
    assert [(server.name, server.group) for server in placed] == [
        (first, "g1"), (third, "g1"), (second, "g2"), (fourth, "g2"),
    ]  # fmt: skip
    found = verify(placed, [server for _, server in sorted(stand.bound("g").items())])
    assert (found.num_moved, found.num_groups, found.crossings) == (0, 2, 2)


def test_pods_of_a_gang_of_two_kinds_of_gpu_run_on_servers_of_each(stand):
    a, b = stand.servers.add(1, gpu="A100"), stand.servers.add(3, gpu="H100")
    kinds = (_kind(2, "H100"), _kind(2, "A100"))
    stand.submit("g", 4, placement=Placement(kinds=kinds))
    stand.for_a_while()
    assert stand.pods("g") == []
    a += stand.servers.add(1, gpu="A100")
    stand.until(lambda: len(stand.bound("g")) == 4)
    assert stand.bound("g") == dict(enumerate([*b[:2], *a]))


def _kind(num_nodes, gpu):
    return ServerKind(num_nodes=num_nodes, labels={"nvidia.com/gpu.product": gpu})


def _names(pods):
    return {pod["metadata"]["name"] for pod in pods if pod["status"]["phase"] == "Running"}
