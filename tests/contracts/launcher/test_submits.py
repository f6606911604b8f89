"""What the launcher of clusters promises of submit and cancel, over the fake API server: crashes, lost answers."""

import threading

import pytest
from tests.contracts.launcher.crashing import Crashing, Killed, Losing
from tests.contracts.launcher.gangs import poll

from gangline.errors import CapacityError, IntegrityError
from gangline.spec.gang.driver_orders import COORDINATOR_KEY, CoordinatorPod

SUBMIT_CALLS = 12


def points(podless) -> int:
    whole = Crashing(podless.api)
    podless.over(whole).submit(podless.gang("whole"))
    return len(whole.writes)


@pytest.mark.row("C1")
@pytest.mark.parametrize("when", ["before", "after"])
def test_submit_that_dies_at_any_write_is_completed_by_the_next(podless, when):
    for point in range(points(podless)):
        name = f"run-{point}"
        with pytest.raises(Killed):
            podless.over(Crashing(podless.api, point=point, when=when)).submit(podless.gang(name))
        left = [root for root in podless.roots() if root["metadata"]["name"] == name]
        released = point == points_of(podless) - 1 and when == "after"
        assert all(is_held(root) for root in left) or released, "a gang that is half submitted holds nothing"
        gang = podless.again().submit(podless.gang(name))
        assert podless.again().submit(podless.gang(name)).uid == gang.uid
        assert sorted(podless.leftovers(name)) == sorted(
            each.replace("whole", name) for each in podless.leftovers("whole")
        )
    assert len(podless.roots()) == points_of(podless) + 1


def points_of(podless) -> int:
    return len(podless.leftovers("whole")) + 1


def is_held(root) -> bool:
    return root["spec"]["suspend"] and "gangline/queued" not in root["metadata"]["annotations"]


@pytest.mark.row("C1")
@pytest.mark.parametrize("when", ["before", "after"])
def test_cancel_that_dies_at_any_write_is_completed_by_the_next(alive, when):
    for point in range(3):
        gang = alive.gang(f"run-{point}", num_nodes=1)
        alive.again().submit(gang)
        poll(lambda gang=gang: alive.again().status(gang.name).state == "running")
        with pytest.raises(Killed):
            alive.over(Crashing(alive.api, point=point, when=when)).cancel(gang.name, reason="enough")
        alive.again().cancel(gang.name, reason="again")
        end = alive.again().collect(gang.name)
        assert (end.exit_code, end.reason) == (
            70,
            f"cancelled: {'again' if point == 0 and when == 'before' else 'enough'}",
        )
        assert alive.leftovers(gang.name) == []


@pytest.mark.row("K2", full="1,000 gangs")
@pytest.mark.parametrize("number", [100, pytest.param(1000, marks=pytest.mark.slow)])
def test_lost_answers_start_no_second_gang(podless, number):
    for count in range(number):
        name = f"run-{count}"
        first = podless.over(Losing(podless.api, share=count % 3 + 1)).submit(podless.gang(name))
        assert podless.again().submit(podless.gang(name)).uid == first.uid
    assert len(podless.roots()) == number
    assert all("gangline/queued" in root["metadata"]["annotations"] for root in podless.roots())


def test_submit_asks_seldom(podless):
    podless.api.calls.clear()
    podless.again().submit(podless.gang())
    assert sum(podless.api.calls.values()) <= SUBMIT_CALLS, podless.api.calls


def test_name_that_something_else_has_is_refused(podless):
    podless.again().submit(podless.gang())
    del podless.roots()[0]["metadata"]["annotations"]
    path = "/apis/batch/v1/namespaces/gangs/jobs/run-1"
    podless.api.patch(path, {"metadata": {"annotations": None}})
    with pytest.raises(IntegrityError, match="not created by gangline"):
        podless.again().submit(podless.gang())


def test_gang_that_is_being_deleted_is_waited_for(alive):
    first = alive.again().submit(alive.gang())
    alive.api.delete("/apis/batch/v1/namespaces/gangs/jobs/run-1", uid=first.uid, propagation="Foreground")
    second = alive.again().submit(alive.gang())
    assert second.uid != first.uid
    assert not second.adopted


def test_two_submitters_start_one_gang(podless):
    gangs = []
    threads = [threading.Thread(target=lambda: gangs.append(podless.again().submit(podless.gang()))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({gang.uid for gang in gangs}) == 1
    assert len(podless.roots()) == 1


def test_cancelled_gang_is_not_started_again(alive):
    first = alive.again().submit(alive.gang())
    alive.again().cancel("run-1", reason="enough")
    again = alive.again().submit(alive.gang())
    assert (again.adopted, again.uid) == (True, first.uid)
    assert alive.roots() == []
    with pytest.raises(IntegrityError, match="priority: 'normal' -> 'high'"):
        alive.again().submit(alive.gang(priority="high"))


@pytest.mark.parametrize("state", ["waiting", "starting", "running", "ended"])
def test_cancel_in_each_state_leaves_nothing_that_holds_a_server(alive, state):
    name = alive.again().submit(alive.gang(num_nodes=2 if state == "waiting" else 1)).name
    alive.nodes.auto = state != "starting"
    poll(lambda: alive.again().status(name).state in (state, "running"))
    if state == "ended":
        for pod in alive.all_of("pods"):
            alive.nodes.end(pod["metadata"]["name"], 0)
        poll(lambda: alive.again().status(name).state == "ended")
    alive.again().cancel(name, reason="enough")
    alive.again().cancel(name, reason="twice")
    assert alive.again().status(name).state == "ended"
    assert alive.again().collect(name).exit_code == (0 if state == "ended" else 70)
    assert [pod for pod in alive.all_of("pods") if pod["status"]["phase"] in ("Pending", "Running")] == []


BESIDE = CoordinatorPod(
    image="registry.example/gangline/federation@sha256:" + "f" * 64, kit="gangline-kit/server.tar",
    admin="gangline-kit/admin.tar", service="federation", port=8002, orders="runs/p/c/run-1/coordinator.json",
)  # fmt: skip


def federated(stand, name):
    env = {COORDINATOR_KEY: BESIDE.to_json().decode()}
    return stand.gang(name, num_nodes=1, procs_per_node=1, env=env)


def holder_of_the_service(stand):
    return [
        each["metadata"]["labels"]["gangline/gang"]
        for each in stand.all_of("services") if each["metadata"]["name"] == "federation"
    ]  # fmt: skip


def test_one_gang_at_a_time_has_the_service_that_members_dial(alive):
    first, second = federated(alive, "run-1"), federated(alive, "run-2")
    alive.again().submit(first)
    alive.again().submit(first)
    with pytest.raises(CapacityError, match=r"services federation in namespace gangs.*gang run-1 has it"):
        alive.again().submit(second)
    assert holder_of_the_service(alive) == ["run-1"]
    assert all(is_held(root) for root in alive.roots() if root["metadata"]["name"] == "run-2")
    poll(lambda: alive.again().status("run-1").state == "running")
    for pod in alive.all_of("pods"):
        alive.nodes.end(pod["metadata"]["name"], 0)
    poll(lambda: alive.again().status("run-1").state == "ended")
    alive.again().submit(second)
    assert holder_of_the_service(alive) == ["run-2"]
    poll(lambda: alive.again().status("run-2").state == "running")
    alive.again().cancel("run-2", reason="enough")
    assert holder_of_the_service(alive) == []


def test_a_service_that_is_no_gangs_is_left_alone(podless):
    path = "/api/v1/namespaces/gangs/services"
    podless.api.create(
        path, {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "federation"}, "spec": {"clusterIP": "None"}}
    )
    with pytest.raises(CapacityError, match="an object that is no gang's has it"):
        podless.again().submit(federated(podless, "run-1"))
