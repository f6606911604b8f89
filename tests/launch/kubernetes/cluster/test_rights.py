"""What accounts really ask for, against the table of their rights: nothing is lacking, nothing is idle."""

from datetime import UTC, datetime

import pytest
from tests.cluster.fake.api import FakeApi
from tests.cluster.fake.controllers import JobController
from tests.cluster.fake.kubelet import FakeKubelet
from tests.contracts.launcher.stands import IMAGE, STORE

from gangline.fabric.placement.order import verify
from gangline.launch.kubernetes.cluster.facts import ClusterFacts, missing_rights, read_facts
from gangline.launch.kubernetes.cluster.rights import (  # fmt: skip
    DRIVER,
    HYPERNODES,
    JOBSET,
    KUEUE,
    PLACER,
    PLACER_CLUSTER,
    READER,
    SELF_PLACER,
    SWEEPER,
    TRAINER,
    VOLCANO,
    single,
)
from gangline.launch.kubernetes.launcher import KubernetesLauncher
from gangline.launch.kubernetes.placement.inventory import read_inventory
from gangline.launch.kubernetes.placement.placer import Placer, hold_lease
from gangline.spec.config.site import LaunchTable, PodTable
from gangline.spec.gang.podset import Placement, PodSet, Resources

pytestmark = pytest.mark.row("A1")
SERVED = ("trainer", "jobset", "kueue")
PODS = "/api/v1/namespaces/gangs/pods"
SMALL = Resources(cpus=1.0, memory_bytes=2**20, shm_bytes=2**16)
QUOTA = {"requests.cpu": "64", "requests.memory": "512Gi"}


def podset(name, **more):
    words = {"name": name, "run": name, "project": "p", "commit": "c" * 40, "image": IMAGE, "store": STORE}
    keys = {"code": f"blobs/sha256/{'1' * 64}", "plan": f"blobs/sha256/{'2' * 64}"}
    return PodSet(**words, **keys, num_nodes=2, procs_per_node=1, resources=SMALL, **more)


def facts(**more):
    return ClusterFacts(version="1.34", served=("batch/v1/jobs",), **more)


def launcher(api, *, of=None, **launch):
    return KubernetesLauncher(
        api, facts=of or facts(placer=True), launch=LaunchTable(target="kubernetes", **{"launcher": "job"} | launch),
        pod=PodTable(disk_bytes=2**20), secrets=lambda name: b"value",
    )  # fmt: skip


def end_gang(server, kubelet, jobs, name, code):
    jobs.step()
    for pod in server.store.all_of(server.kind("pods"), "gangs"):
        if pod["metadata"]["labels"].get("gangline/gang") == name:
            kubelet.run(pod["metadata"]["name"])
            kubelet.end(pod["metadata"]["name"], code)
    jobs.step()


def drive(api, jobs, kubelet):
    """A driver's day: two gangs, one that ends and one that is cancelled."""
    driver = launcher(api, route="none")
    first = podset("first", secrets=("checkpoint-key",), metrics_port_base=9400)
    driver.submit(first)
    driver.submit(first)
    end_gang(api.server, kubelet, jobs, "first", 0)
    assert list(driver.follow("first"))[-1].kind == "end"
    list(driver.logs("first"))
    driver.collect("first")
    driver.submit(podset("second", secrets=("checkpoint-key",)))
    jobs.step()
    driver.status("second")
    driver.renew("second")
    api.hooks.append(lambda _, proceed: (jobs.step(), kubelet.step(), proceed())[-1])  # the cluster goes on
    driver.cancel("second", reason="enough", save=False)


def used(api):
    return {f"{verb} {resource}" for verb, resource in api.calls if not resource.startswith("/")}


def given(*tables):
    return {f"{verb} {right.what}" for table in tables for right, verb, _ in single(table)}


def idle(api, *tables):
    """Rights that were given and not used, on what plain clusters serve."""
    return {
        each
        for each in given(*tables) - used(api)
        if not each.endswith((TRAINER, JOBSET, VOLCANO)) and KUEUE not in each
    }


def test_driver_needs_no_more_than_its_rights():
    api = FakeApi(serve=SERVED, rights=DRIVER)
    jobs, kubelet = JobController(api), FakeKubelet(api.server, nodes=("a", "b"))
    read_facts(api)
    assert missing_rights(api) == []
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}, "spec": {"hard": QUOTA}}
    FakeApi(server=api.server).create("/api/v1/namespaces/gangs/resourcequotas", quota)
    read_inventory(api, PodTable())
    drive(api, jobs, kubelet)
    readers = given(READER) | {"get services", "list priorityclasses.scheduling.k8s.io"}
    assert set(api.refused) <= readers
    assert idle(api, DRIVER) == {
        "patch services", "patch networkpolicies.networking.k8s.io",  # of a submit that another one began
        "delete pods", "patch pods/status",  # on a dead server
        "list events",  # of a gang that waits
        "get serviceaccounts",  # by doctor
    }  # fmt: skip


def placed_by_volcano(rights):
    """Follows a gang that is one tile of two pods, on two servers of two groups."""
    api = FakeApi(serve=("volcano",), rights=rights)
    jobs, kubelet = JobController(api), FakeKubelet(api.server, nodes=("a", "b"), auto=False)
    everything = FakeApi(server=api.server)
    for name, group in {"a": "g1", "b": "g2"}.items():
        everything.patch(f"/api/v1/nodes/{name}", {"metadata": {"labels": {"gangline/fabric-group": group}}})
    queue = {"apiVersion": f"{VOLCANO}/v1beta1", "kind": "Queue", "metadata": {"name": "default"}}
    everything.create(f"/apis/{VOLCANO}/v1beta1/queues", queue)
    everything.patch(f"/apis/{VOLCANO}/v1beta1/queues/default/status", {"status": {"state": "Open"}})
    rack = {
        "apiVersion": f"{HYPERNODES}/v1alpha1",
        "kind": "HyperNode",
        "metadata": {"name": "g1"},
        "spec": {"tier": 1},
    }
    everything.create(f"/apis/{HYPERNODES}/v1alpha1/hypernodes", rack)
    driver = launcher(api, of=read_facts(api), route="volcano")
    driver.submit(podset("whole", placement=Placement(tile=2)))
    jobs.step()
    pods = everything.items(PODS)[0]
    for pod, node in zip(sorted(pod["metadata"]["name"] for pod in pods), ("b", "a"), strict=True):
        kubelet.run(pod, node=node)
    return everything, driver.follow("whole")


def test_order_of_a_gang_that_another_scheduler_placed_is_read_from_the_labels_of_its_nodes():
    _, events = placed_by_volcano((*DRIVER, *READER))
    seen = next(each.status for each in events if each.status and each.status.placed)
    events.close()
    order = verify(seen.placed, seen.servers, tile=seen.tile)
    assert (seen.servers, order.num_groups, order.crossings, order.num_moved) == (("b", "a"), 2, 2, 0)
    assert [each.groups for each in order.split] == [("/g2", "/g1")]


def test_tiles_of_a_gang_whose_nodes_may_not_be_read_are_said_not_to_be_known():
    everything, events = placed_by_volcano(DRIVER)
    reported = []
    for event in events:
        reported += [event.text] if event.data.get("event") == "tiles_not_known" else []
        if event.status is not None and event.status.state == "stopping":
            break
        everything.delete("/apis/batch/v1/namespaces/gangs/jobs/whole")  # so that it comes to an end in any case
    events.close()
    why = "this account may not list nodes (gangline-reader)"
    assert reported == [f"whether each tile of 2 nodes shares a group of servers is not known: {why}"]


def test_sweeper_needs_no_more_than_its_rights():
    api = FakeApi(serve=SERVED, rights=SWEEPER)
    everything = FakeApi(server=api.server)
    jobs = JobController(api)
    every = facts(trainer="runtimePatches", placer=True)
    launcher(everything, route="none").submit(podset("over"))
    jobs.step()
    sweeping = launcher(api, of=every)
    swept = sweeping.sweep(now=datetime.now(UTC), life=lambda run: "ended")
    assert [each.name for each in swept if each.deleted] == ["over"]
    assert set(api.refused) <= {"list secrets"}
    leftovers = {"services", "pods", "networkpolicies.networking.k8s.io", "configmaps"}
    assert idle(api, SWEEPER) == {f"delete {each}" for each in leftovers}  # here all went with its root


def test_placer_needs_no_more_than_its_rights():
    api = FakeApi(serve=SERVED, rights=(*PLACER, *PLACER_CLUSTER))
    everything = FakeApi(server=api.server)
    jobs, kubelet = JobController(api), FakeKubelet(api.server, nodes=("a", "b"))
    launcher(everything, route="gates").submit(podset("placed"))
    placer = Placer(api, holder="me")
    now = datetime.now(UTC)
    assert hold_lease(api, holder="me", now=now)
    for _ in range(6):
        placer.step(datetime.now(UTC))
        jobs.step()
        kubelet.step()
    pods = everything.items("/api/v1/namespaces/gangs/pods")[0]
    assert [bool(pod["spec"].get("schedulingGates")) for pod in pods] == [False, False]
    assert not api.refused
    everything.patch("/apis/batch/v1/namespaces/gangs/jobs/placed", {"spec": {"suspend": True}})  # by hand
    jobs.step(), kubelet.step(), jobs.step()
    for _ in range(2):
        placer.step(datetime.now(UTC))
    assert not everything.get("/apis/batch/v1/namespaces/gangs/jobs/placed")["spec"]["suspend"]
    assert not api.refused
    assert idle(api, PLACER, PLACER_CLUSTER) == {"update leases.coordination.k8s.io"}  # renewed after some seconds


def test_driver_without_a_placer_places_its_gang_with_the_placers_rights_next_to_its_own():
    api = FakeApi(serve=SERVED, rights=(*DRIVER, *SELF_PLACER, *PLACER_CLUSTER))
    jobs, kubelet = JobController(api), FakeKubelet(api.server, nodes=("a", "b"))
    api.idle.append(lambda: (jobs.step(), kubelet.step()))
    driver = launcher(api, of=facts(placer=False), route="gates")
    driver.submit(podset("alone"))
    events = driver.follow("alone")
    assert next(each.status for each in events if each.status and each.status.state == "running").servers == ("a", "a")
    events.close()
    assert set(api.refused) <= given(READER)
