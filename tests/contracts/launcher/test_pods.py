"""What the launcher of clusters promises of gangs that it follows, over the fake API server: losses, outages, ends."""

import threading
import time
from datetime import UTC, datetime, timedelta

import pytest
from tests.contracts.launcher.crashing import Closing, Shaky
from tests.contracts.launcher.gangs import HEAD, SLEEPER, STEPPER, poll

from gangline.errors import ConfigError, StorageError
from gangline.launch.kubernetes.cluster.rights import DRIVER, READER, SWEEPER

pytestmark = pytest.mark.long


@pytest.mark.row("K4")
def test_gang_that_its_queue_suspends_waits_and_continues_in_the_same_job(alive):
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


def test_while_a_life_is_unknown_only_what_is_past_its_hard_end_goes(podless):
    podless.again().submit(podless.gang("short", deadline_seconds=60))
    podless.again().submit(podless.gang("endless"))
    later = datetime.now(UTC) + timedelta(days=8)
    soon = podless.again().sweep(now=datetime.now(UTC), life=lambda _: "unknown")
    late = podless.again().sweep(now=later, life=lambda _: "unknown")
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
    rest = list(fake.again().follow(name))
    assert [event.data["step"] for event in rest if event.kind == "progress" and event.data["rank"] == 0] == [0, 1]
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


def test_follower_reports_why_it_waits_and_when_that_changes(alive):
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
