"""What the launcher of clusters promises beyond the contract, over the fake API server: crashes, losses, outages."""

import threading
import time
from datetime import UTC, datetime, timedelta

import pytest
from tests.cluster.fake.api import FakeApi
from tests.cluster.fake.controllers import JobController
from tests.cluster.fake.kubelet import FakeKubelet
from tests.contracts.launcher.crashing import Closing, Crashing, Killed, Losing, Shaky
from tests.contracts.launcher.gangs import HEAD, SLEEPER, STEPPER, Stand, poll
from tests.contracts.launcher.stands import IMAGE, STORE, FakeStand

from gangline.errors import ConfigError, IntegrityError, StorageError
from gangline.launch.kubernetes.cluster.rights import DRIVER, READER, SWEEPER
from gangline.spec.gang.podset import PodSet, Resources

SUBMIT_CALLS = 12


class Desk(FakeStand):
    """Drivers and a server, but nothing that runs pods."""

    def __init__(self, root) -> None:
        self.api = FakeApi(patience=0.02)
        Stand.__init__(self, root)
        self.jobs = JobController(self.api.server)
        self.nodes = FakeKubelet(self.api.server)

    def gang(self, name: str = "run-1", **changes) -> PodSet:
        some = {
            "name": name, "run": name, "project": "p", "commit": "c", "procs_per_node": 2, "num_nodes": 2,
            "code": "blobs/sha256/aa", "plan": "blobs/sha256/bb", "store": STORE, "image": IMAGE,
            "resources": Resources(cpus=1.0, memory_bytes=2**30), "secrets": ("checkpoint-key",),
        }  # fmt: skip
        return PodSet(**some | changes)

    def turn(self) -> None:
        """Controllers and kubelet, once."""
        with self.api.server.store.changed:
            self.jobs.step()
            self.nodes.step()

    def roots(self) -> list[dict]:
        return self.all_of("jobs.batch")

    def all_of(self, kind: str) -> list[dict]:
        return list(self.api.server.store.all_of(self.api.server.kind(kind), self.api.namespace))


@pytest.fixture
def desk(tmp_path):
    return Desk(tmp_path)


@pytest.fixture
def alive(desk):
    """A desk whose controllers work by themselves."""
    over = threading.Event()

    def work():
        while not over.wait(0.02):
            desk.turn()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    yield desk
    over.set()
    thread.join()


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


@pytest.mark.row("K4")
def test_gang_that_its_queue_suspends_waits_and_goes_on_in_the_same_job(alive):
    gang = alive.gang(num_nodes=1)
    uid = alive.again().submit(gang).uid
    poll(lambda: alive.again().status(gang.name).state == "running")
    path = f"/apis/batch/v1/namespaces/{alive.api.namespace}/jobs/{gang.name}"
    for _ in range(2):  # preempted, admitted, and once more
        alive.api.patch(path, {"spec": {"suspend": True}})
        poll(lambda: not alive.all_of("pods"))
        assert alive.again().status(gang.name).state == "waiting"
        alive.api.patch(path, {"spec": {"suspend": False}})
        poll(lambda: alive.again().status(gang.name).state == "running")
    job = alive.api.get(path)
    assert job["metadata"]["uid"] == uid
    assert alive.again().status(gang.name).restarts == 0
    alive.again().cancel(gang.name, reason="seen")


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


@pytest.mark.row("K1", full="500 gangs over a server that fails in three of ten calls")
@pytest.mark.parametrize("number", [*range(5), *(pytest.param(each, marks=pytest.mark.slow) for each in range(5, 500))])
def test_gang_comes_and_goes_over_a_server_that_fails_in_three_of_ten_calls(alive, seed, number):
    driver, gang = alive.over(Shaky(alive.api, share=0.3, seed=100 * seed + number)), alive.gang(num_nodes=1)
    first = insisting(lambda: driver.submit(gang))
    assert len(alive.roots()) == 1
    assert insisting(lambda: driver.submit(gang)).uid == first.uid
    poll(lambda: alive.again().status(gang.name).state == "running")
    assert insisting(lambda: driver.status(gang.name)).state != "absent"
    insisting(lambda: driver.cancel(gang.name, reason="enough"))
    assert insisting(lambda: driver.collect(gang.name)).exit_code == 70
    assert alive.leftovers(gang.name) == []


def insisting(call):
    """As the line does: what is safe to repeat is repeated."""
    for _ in range(100):
        try:
            return call()
        except StorageError:
            continue
    raise AssertionError("it never succeeded")


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


@pytest.mark.row("K7")
def test_server_that_is_away_makes_states_stale_and_nothing_else(alive):
    reach = Closing(alive.api)
    driver = alive.over(reach)
    name = driver.submit(alive.gang(num_nodes=1)).name
    seen = []

    def follow():
        seen.extend(driver.follow(name))

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    poll(lambda: any(event.status and event.status.state == "running" for event in seen))
    reach.is_closed = True
    poll(lambda: any(event.status and event.status.stale_seconds > 0 for event in seen))
    status = driver.status(name)
    assert (status.state, status.stale_seconds > 0) != ("absent", False)
    reach.is_closed = False
    poll(lambda: seen[-1].status and seen[-1].status.stale_seconds == 0)
    alive.nodes.end(alive.all_of("pods")[0]["metadata"]["name"], 0)
    thread.join(30)
    assert seen[-1].end.exit_code == 0
    assert {event.status.state for event in seen if event.status and event.status.stale_seconds} == {"running"}


@pytest.mark.row("K7")
def test_follower_that_begins_while_the_server_is_away_waits_for_it(alive):
    reach = Closing(alive.api)
    driver = alive.over(reach)
    name = driver.submit(alive.gang(num_nodes=1)).name
    reach.is_closed = True
    events = driver.follow(name)
    note = next(events)
    assert note.kind == "note"
    assert note.text.startswith("no answer since ")
    reach.is_closed = False
    assert next(event for event in events if event.status and event.status.state == "running").status.joined == 2


def test_image_that_has_no_name_ends_the_gang_at_once(alive):
    alive.nodes.auto = False
    name = alive.again().submit(alive.gang(num_nodes=1)).name
    poll(lambda: alive.all_of("pods"))
    alive.nodes.bind(alive.all_of("pods")[0]["metadata"]["name"])
    alive.nodes.wait(alive.all_of("pods")[0]["metadata"]["name"], "InvalidImageName", 'image "UPPER" is no name')
    events = list(alive.again().follow(name))
    assert [event.text for event in events if event.kind == "waiting"][-1] == "image UPPER: invalid image name"
    end = events[-1].end
    assert (end.exit_code, end.retry) == (ConfigError.exit_code, "never")
    assert "can never start" in end.reason
    assert alive.leftovers(name) == []
    assert alive.again().collect(name) == end


def test_pod_on_a_dead_server_is_given_up_and_another_takes_its_place(alive):
    name = alive.again().submit(alive.gang(num_nodes=1)).name
    poll(lambda: alive.again().status(name).state == "running")
    pod = alive.all_of("pods")[0]
    past = (datetime.now(UTC) - timedelta(seconds=300)).strftime("%Y-%m-%dT%H:%M:%SZ")
    alive.nodes.step = lambda: 0  # the server is dead: nobody ends its pod
    pod["metadata"] |= {"deletionTimestamp": past, "deletionGracePeriodSeconds": 30}
    alive.api.server.write(("pods", "gangs", pod["metadata"]["name"]), pod)
    events = alive.again().follow(name)
    thread = threading.Thread(target=lambda: list(events), daemon=True)
    thread.start()
    poll(lambda: [each["metadata"]["uid"] != pod["metadata"]["uid"] for each in alive.all_of("pods")] == [True])
    assert set(alive.api.calls) - allowed(DRIVER, READER) == set()


def test_root_that_a_stranger_deletes_is_a_lost_gang(alive):
    name = alive.again().submit(alive.gang(num_nodes=1)).name
    poll(lambda: alive.again().status(name).state == "running")
    events = alive.again().follow(name)
    next(events)
    alive.api.delete(f"/apis/batch/v1/namespaces/gangs/jobs/{name}", propagation="Foreground")
    end = list(events)[-1].end
    assert end.retry in ("same", "free")
    assert alive.again().collect(name) == end


@pytest.mark.row("I4")
def test_sweep_finds_what_has_lost_its_root(alive):
    for name in ("ended", "followed"):
        alive.again().submit(alive.gang(name, num_nodes=1))
    secret = alive.all_of("secrets")[0]
    stray = {"metadata": {"name": "stray", "labels": {**secret["metadata"]["labels"], "gangline/gang": "stray"}}}
    alive.api.create("/api/v1/namespaces/gangs/secrets", {"apiVersion": "v1", "kind": "Secret", **stray})
    alive.again().cancel("ended", reason="enough")
    swept = alive.again().sweep(now=datetime.now(UTC), life=lambda run: "ended" if run == "ended" else "followed")
    assert {each.name: each.deleted for each in swept} == {"ended": True, "followed": False, "stray": True}
    poll(lambda: alive.again().status("ended").state == "absent")
    poll(lambda: alive.leftovers("stray") == [])


def test_while_a_life_is_unknown_only_what_is_past_its_hard_end_goes(desk):
    desk.again().submit(desk.gang("short", deadline_seconds=60))
    desk.again().submit(desk.gang("endless"))
    later = datetime.now(UTC) + timedelta(days=8)
    soon = desk.again().sweep(now=datetime.now(UTC), life=lambda _: "unknown")
    late = desk.again().sweep(now=later, life=lambda _: "unknown")
    assert [each.deleted for each in soon] == [False, False]
    assert {each.name: each.deleted for each in late} == {"short": True, "endless": False}


def test_driver_that_dies_in_follow_is_followed_by_another(fake):
    name = fake.launcher.submit(
        fake.podset(HEAD + "step(0)\nwhile not os.path.exists('go'): time.sleep(0.02)\nstep(1)")
    ).name
    events = fake.launcher.follow(name)
    assert next(event for event in events if event.kind == "progress").data["step"] == 0
    events.close()
    home = fake.kubelet.homes(name)[0]
    (home / "code" / "go").touch()
    rest = list(fake.again().follow(name, after={0: 1}))
    assert [event.data["step"] for event in rest if event.kind == "progress" and event.data["rank"] == 0] == [1]
    assert rest[-1].end.exit_code == 0


def test_killed_keeper_is_a_loss_that_is_tried_again(fake):
    fake.launcher.submit(fake.podset(SLEEPER))
    poll(lambda: fake.launcher.status("run-1").state == "running")
    fake.kubelet.kill("run-1")
    end = list(fake.launcher.follow("run-1"))[-1].end
    assert (end.exit_code, end.retry) == (137, "same")


def test_secrets_of_an_ended_gang_are_blank(fake):
    name = fake.launcher.submit(fake.podset(STEPPER)).name
    fake.launcher.renew(name)
    assert list(fake.launcher.follow(name))[-1].end.exit_code == 0
    secret = fake.api.server.store.get(("secrets", "gangs", f"{name}.gang"))
    assert not secret.get("data")
    fake.launcher.renew(name)
    assert not fake.api.server.store.get(("secrets", "gangs", f"{name}.gang")).get("data")


def test_follower_tells_why_it_waits_and_when_that_changes(alive):
    alive.nodes.auto = False
    name = alive.again().submit(alive.gang(num_nodes=1)).name
    poll(lambda: alive.all_of("pods"))
    pod = alive.all_of("pods")[0]["metadata"]["name"]
    alive.nodes.unschedulable(pod, "0/4 nodes are available: 4 Insufficient nvidia.com/gpu.")
    events = alive.again().follow(name)
    said = next(event for event in events if event.kind == "waiting")
    assert said.text == "none of 4 servers takes a pod: 4 lack nvidia.com/gpu"
    assert said.data["raw"].startswith("0/4 nodes")
    started = time.monotonic()
    alive.nodes.run(pod)
    assert next(event for event in events if event.status and event.status.state == "running").status.joined == 2
    assert time.monotonic() - started < 30


def allowed(*accounts):
    return {(verb, right.what) for rights in accounts for right in rights for verb in right.verbs}


@pytest.mark.row("A1")
def test_driver_and_sweeper_do_only_what_their_accounts_may(fake):
    fake.api.calls.clear()
    name = fake.launcher.submit(fake.podset(STEPPER)).name
    fake.launcher.status(name)
    fake.launcher.renew(name)
    assert list(fake.launcher.follow(name))[-1].end.exit_code == 0
    assert list(fake.launcher.logs(name))
    fake.launcher.submit(fake.podset(SLEEPER, "orphan"))
    fake.launcher.cancel("orphan", reason="enough", save=False)
    assert set(fake.api.calls) - allowed(DRIVER, READER) == set()
    fake.api.calls.clear()
    fake.api.server.denied |= {("list", "secrets")}
    assert all(each.deleted for each in fake.launcher.sweep(now=datetime.now(UTC), life=lambda _: "ended"))
    assert set(fake.api.calls) - allowed(SWEEPER) == {("list", "secrets")}, "secrets go with their owner"
