"""What the launcher of clusters promises of submit and cancel, over the fake API server: crashes, lost answers."""

import threading

import pytest
from tests.contracts.launcher.crashing import Crashing, Killed, Losing
from tests.contracts.launcher.gangs import poll

from gangline.errors import IntegrityError

SUBMIT_CALLS = 12


def points(desk) -> int:
    whole = Crashing(desk.api)
    desk.over(whole).submit(desk.gang("whole"))
    return len(whole.writes)


@pytest.mark.row("C1")
@pytest.mark.parametrize("when", ["before", "after"])
def test_submit_that_dies_at_any_write_is_completed_by_the_next(desk, when):
    for point in range(points(desk)):
        name = f"run-{point}"
        with pytest.raises(Killed):
            desk.over(Crashing(desk.api, point=point, when=when)).submit(desk.gang(name))
        left = [root for root in desk.roots() if root["metadata"]["name"] == name]
        released = point == points_of(desk) - 1 and when == "after"
        assert all(is_held(root) for root in left) or released, "a gang that is half submitted holds nothing"
        gang = desk.again().submit(desk.gang(name))
        assert desk.again().submit(desk.gang(name)).uid == gang.uid
        assert sorted(desk.leftovers(name)) == sorted(each.replace("whole", name) for each in desk.leftovers("whole"))
    assert len(desk.roots()) == points_of(desk) + 1


def points_of(desk) -> int:
    return len(desk.leftovers("whole")) + 1


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
def test_lost_answers_start_no_second_gang(desk, number):
    for count in range(number):
        name = f"run-{count}"
        first = desk.over(Losing(desk.api, share=count % 3 + 1)).submit(desk.gang(name))
        assert desk.again().submit(desk.gang(name)).uid == first.uid
    assert len(desk.roots()) == number
    assert all("gangline/queued" in root["metadata"]["annotations"] for root in desk.roots())


def test_submit_asks_seldom(desk):
    desk.api.calls.clear()
    desk.again().submit(desk.gang())
    assert sum(desk.api.calls.values()) <= SUBMIT_CALLS, desk.api.calls


def test_name_that_something_else_has_is_refused(desk):
    desk.again().submit(desk.gang())
    del desk.roots()[0]["metadata"]["annotations"]
    path = "/apis/batch/v1/namespaces/gangs/jobs/run-1"
    desk.api.patch(path, {"metadata": {"annotations": None}})
    with pytest.raises(IntegrityError, match="not created by gangline"):
        desk.again().submit(desk.gang())


def test_gang_that_is_being_deleted_is_waited_for(alive):
    first = alive.again().submit(alive.gang())
    alive.api.delete("/apis/batch/v1/namespaces/gangs/jobs/run-1", uid=first.uid, propagation="Foreground")
    second = alive.again().submit(alive.gang())
    assert second.uid != first.uid
    assert not second.adopted


def test_two_submitters_start_one_gang(desk):
    gangs = []
    threads = [threading.Thread(target=lambda: gangs.append(desk.again().submit(desk.gang()))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({gang.uid for gang in gangs}) == 1
    assert len(desk.roots()) == 1


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
