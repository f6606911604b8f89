"""A watched list equals the server's, whatever watches do."""

import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs
from tests.cluster.fake.api import FakeApi
from tests.cluster.faults.proxy.rules import HttpRule
from tests.launch.kubernetes.served import MAPS, config_map, stand

from gangline.launch.kubernetes.client import client as client_module
from gangline.launch.kubernetes.client.api import ApiForbidden, WatchEvent
from gangline.launch.kubernetes.client.informer import Informer, ObjectCache, trim_object, trim_pod

PATIENCE_SECONDS = 30.0
FAULTS = {
    "cut": HttpRule(action="cut_watch", after=2),
    "silent death": HttpRule(action="stall_watch", after=2, seconds=60.0),
    "every second event lost": HttpRule(action="thin_watch"),
    "bookmarks only": HttpRule(action="bookmarks_only"),
    "reordered": HttpRule(action="reorder_watch"),
    "too old": HttpRule(action="old_version"),
    "5xx": HttpRule(action="answer", status=500, times=3),
}


def await_equal(informer, stand):
    deadline = time.monotonic() + PATIENCE_SECONDS
    while (held := {each["metadata"]["name"] for each in informer.objects()}) != stand.names():
        assert time.monotonic() < deadline, f"held {sorted(held)}, the server has {sorted(stand.names())}"
        time.sleep(0.02)


@pytest.mark.parametrize("changes", [12, pytest.param(1000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("rule", FAULTS.values(), ids=FAULTS.keys())
@pytest.mark.row("K3", full="1,000 objects under each of seven faults")
def test_list_equals_the_servers_and_no_deletion_is_lost(rule, changes, tmp_path, monkeypatch):
    monkeypatch.setattr(client_module, "SILENCE_SECONDS", 1.0)
    with stand(tmp_path) as here:
        writer = FakeApi(server=here.server)
        here.proxy.book.set(rule)
        with Informer(here.client(), MAPS, relist_seconds=1.0) as informer:
            assert informer.is_listed.wait(PATIENCE_SECONDS)
            for number in range(changes):
                writer.create(MAPS, config_map(f"m{number}"))
                if number % 3 == 0:
                    writer.delete(f"{MAPS}/m{number}")
            await_equal(informer, here)
            assert here.proxy.book.strikes


@pytest.mark.row("K3")
def test_watch_without_faults_reports_changes_at_once_and_lists_once(tmp_path):
    with stand(tmp_path) as here:
        client, changed = here.client(), threading.Event()
        with Informer(client, MAPS, changed=changed.set) as informer:
            assert informer.is_listed.wait(PATIENCE_SECONDS)
            changed.clear()
            FakeApi(server=here.server).create(MAPS, config_map("a"))
            assert changed.wait(PATIENCE_SECONDS)
            await_equal(informer, here)
        assert client.calls["list", "configmaps"] == 1


@pytest.mark.row("K7")
def test_server_that_goes_away_leaves_the_last_state_and_its_age(tmp_path):
    with stand(tmp_path) as here:
        FakeApi(server=here.server).create(MAPS, config_map("a"))
        with Informer(here.client(deadline_seconds=0.3), MAPS, relist_seconds=0.5) as informer:
            assert informer.is_listed.wait(PATIENCE_SECONDS)
            here.proxy.book.set(HttpRule(action="answer", status=503))
            deadline = time.monotonic() + PATIENCE_SECONDS
            while informer.away_since is None or informer.stale_seconds < 0.2:
                assert time.monotonic() < deadline
                time.sleep(0.02)
            assert [each["metadata"]["name"] for each in informer.objects()] == ["a"]
            here.proxy.book.set()
            FakeApi(server=here.server).create(MAPS, config_map("b"))
            await_equal(informer, here)
            assert informer.away_since is None


def test_right_that_is_missing_ends_it_with_that_error():
    api, reported = FakeApi(), threading.Event()
    api.server.denied.add(("list", "configmaps"))
    with Informer(api, MAPS, changed=reported.set) as informer:
        assert reported.wait(PATIENCE_SECONDS)
    assert isinstance(informer.error, ApiForbidden)


@pytest.mark.row("F5")
def test_object_that_no_one_can_read_is_left_out_alone():
    api = FakeApi()
    api.create(MAPS, config_map("a", size="7"))
    api.create(MAPS, config_map("hostile", size="many"))

    def keep(body):
        return {**body, "size": int(body["data"]["size"])}

    with capture_logs() as logged, Informer(api, MAPS, keep=keep) as informer:
        assert informer.is_listed.wait(PATIENCE_SECONDS)
        assert [each["size"] for each in informer.objects()] == [7]
        api.patch(f"{MAPS}/hostile", {"data": {"size": "more"}})
        api.create(MAPS, config_map("b", size="8"))
        deadline = time.monotonic() + PATIENCE_SECONDS
        while sorted(each["size"] for each in informer.objects()) != [7, 8]:
            assert time.monotonic() < deadline, informer.objects()
            time.sleep(0.02)
        assert informer.unreadable == {"hostile"}
        for number in range(2000):
            informer._trim(config_map(f"hostile-{number}", size="\x1b[31m"))
        assert len(informer.unreadable) == 1000
    said = [each for each in logged if each["event"] == "unreadable_object"]
    assert len(said) == 1000
    assert [each["name"] for each in said].count("hostile") == 1
    assert all(each["why"].startswith("ValueError") and "\x1b" not in each["why"] for each in said)


def version(number, uid="u", kind="modified"):
    body = {"metadata": {"name": uid, "uid": uid, "resourceVersion": str(number)}}
    return WatchEvent(kind=kind, object=body)


@given(order=st.permutations(range(1, 9)), gone=st.booleans())
@pytest.mark.row("K3")
def test_events_in_any_order_end_in_the_newest_state(order, gone):
    """Oracle: the event of the highest version alone."""
    held = ObjectCache()
    held.replace_all([], "0")
    for number in order:
        event = version(number, kind="deleted" if gone and number == 8 else "modified")
        if held.is_newer(event):
            held.apply(event, event.object)
    newest = [each["metadata"]["resourceVersion"] for each in held.objects.values()]
    assert newest == ([] if gone else ["8"])


@pytest.mark.row("K3")
def test_event_older_than_the_list_raises_no_dead():
    held = ObjectCache()
    held.replace_all([], "100")
    assert not held.is_newer(version(99, kind="added"))
    assert held.is_newer(version(101, kind="added"))


def test_lean_object_has_lost_nothing_that_is_read():
    pod = {
        "metadata": {
            "name": "p",
            "managedFields": [{"manager": "x"}],
            "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}", "a": "b"},
        },
        "spec": {
            "nodeName": "n",
            "volumes": [{"name": "v"}],
            "containers": [{"name": "node", "image": "i", "env": [{"name": "A"}], "resources": {"limits": {"cpu": 1}}}],
        },
        "status": {"phase": "Running"},
    }
    assert trim_object(pod)["spec"] == pod["spec"]
    assert trim_pod(pod) == {
        "metadata": {"name": "p", "annotations": {"a": "b"}},
        "spec": {
            "nodeName": "n",
            "containers": [{"name": "node", "image": "i", "resources": {"limits": {"cpu": 1}}}],
        },
        "status": {"phase": "Running"},
    }
