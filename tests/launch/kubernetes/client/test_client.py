"""The client over HTTP, before a fake API server whose answers get lost, late or refused."""

import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.cluster.fake.api import FakeApi
from tests.cluster.fake.front import kubeconfig, serving
from tests.cluster.fake.server import FakeServer
from tests.cluster.faults.proxy.rules import HttpRule
from tests.launch.kubernetes.served import MAPS, config_map, stand

from gangline.errors import ConfigError
from gangline.faults.proxy import FaultProxy
from gangline.launch.kubernetes.client.api import ApiConflict, ApiExpired, ApiForbidden, ApiRejected, ApiUnavailable
from gangline.launch.kubernetes.client.client import connect


@pytest.fixture
def here(tmp_path):
    with stand(tmp_path) as each:
        yield each


@pytest.mark.row("K1")
def test_write_is_sent_again_after_as_long_as_the_server_asked(here):
    here.proxy.book.set(HttpRule(action="answer", status=429, retry_after_seconds=1, method="POST", times=1))
    began = time.monotonic()
    here.client().create(MAPS, config_map("a"))
    assert 1.0 <= time.monotonic() - began < 5.0
    assert here.names() == {"a"}


@pytest.mark.row("K1")
@pytest.mark.parametrize("status", [500, 502, 503, 504])
def test_read_is_sent_again_until_the_server_is_well(here, status):
    here.proxy.book.set(HttpRule(action="answer", status=status, times=3))
    assert here.client().items(MAPS)[0] == []
    assert len(here.proxy.book.strikes) == 3


@pytest.mark.row("K2")
def test_lost_answer_of_a_create_leaves_one_object_and_says_that_the_name_is_taken(here):
    here.proxy.book.set(HttpRule(action="lose_answer", method="POST", times=1))
    client = here.client()
    with pytest.raises(ApiConflict):
        client.create(MAPS, config_map("a", by="us"))
    assert client.get(f"{MAPS}/a")["data"] == {"by": "us"}


@pytest.mark.row("K2")
@pytest.mark.parametrize("how", ["lost", "5xx"])
def test_patch_with_an_unknown_outcome_is_not_sent_again(here, how):
    client = here.client()
    client.create(MAPS, config_map("a"))
    rule = {"lost": HttpRule(action="lose_answer", method="PATCH"), "5xx": HttpRule(action="answer", status=504)}[how]
    here.proxy.book.set(rule)
    with pytest.raises(ApiUnavailable, match="patch configmaps a in namespace gangs"):
        client.patch(f"{MAPS}/a", {"data": {"x": "1"}})
    assert len(here.proxy.book.strikes) == 1


@pytest.mark.row("K1")
def test_replace_that_was_refused_with_429_is_sent_again(here):
    client = here.client()
    made = client.create(MAPS, config_map("a"))
    here.proxy.book.set(HttpRule(action="answer", status=429, method="PUT", times=2))
    assert client.replace(f"{MAPS}/a", {**made, "data": {"x": "1"}})["data"] == {"x": "1"}


@pytest.mark.row("K2")
def test_lost_answer_of_a_delete_by_uid_deletes_no_one_else(here):
    client = here.client()
    made = client.create(MAPS, config_map("a"))
    here.proxy.book.set(HttpRule(action="lose_answer", method="DELETE", times=1))
    assert client.delete(f"{MAPS}/a", uid=made["metadata"]["uid"]) is False
    assert here.names() == set()


@pytest.mark.row("K2")
def test_delete_of_another_uid_deletes_nothing(here):
    client = here.client()
    client.create(MAPS, config_map("a"))
    assert client.delete(f"{MAPS}/a", uid="of another life") is False
    assert here.names() == {"a"}


def test_delete_without_uid_whose_answer_is_lost_is_not_sent_again(here):
    client = here.client()
    client.create(MAPS, config_map("a"))
    here.proxy.book.set(HttpRule(action="lose_answer", method="DELETE"))
    with pytest.raises(ApiUnavailable):
        client.delete(f"{MAPS}/a")
    assert len(here.proxy.book.strikes) == 1


@pytest.mark.row("K1")
def test_all_tries_of_a_call_share_one_deadline(here):
    here.proxy.book.set(HttpRule(action="answer", status=503))
    began = time.monotonic()
    with pytest.raises(ApiUnavailable, match=r"gave no answer in [12]\.\d s .*503"):
        here.client(deadline_seconds=1.5).get(f"{MAPS}/a")
    assert time.monotonic() - began < 4.0


@pytest.mark.row("K1")
def test_server_that_holds_its_answer_is_away_at_the_deadline(here):
    here.proxy.book.set(HttpRule(action="hold", seconds=5.0))
    began = time.monotonic()
    with pytest.raises(ApiUnavailable):
        here.client(deadline_seconds=1.0).get(f"{MAPS}/a")
    assert time.monotonic() - began < 4.0


@pytest.mark.row("K1")
@pytest.mark.parametrize("status", [200, 404, 503])
def test_body_that_drips_ends_at_the_deadline(here, status):
    here.proxy.book.set(HttpRule(action="drip", status=status, seconds=20.0))
    client = here.client(deadline_seconds=1.0)
    began = time.monotonic()
    with pytest.raises(ApiUnavailable):
        client.get(f"{MAPS}/a")
    assert time.monotonic() - began < 4.0
    here.proxy.book.set()
    client.patch(f"{MAPS}/a", {"data": {}})  # is sent once: an unread answer would fail it


@pytest.mark.row("K1")
def test_watch_that_drips_ends_when_its_time_is_over(here):
    here.proxy.book.set(HttpRule(action="drip", status=200, seconds=20.0))
    began = time.monotonic()
    assert list(here.client().watch(MAPS, resource_version="1", seconds=1.0)) == []
    assert time.monotonic() - began < 4.0


@pytest.mark.row("K1")
def test_server_that_asks_for_more_patience_than_there_is_is_away_at_once(here):
    here.proxy.book.set(HttpRule(action="answer", status=429, retry_after_seconds=600))
    began = time.monotonic()
    with pytest.raises(ApiUnavailable, match="429"):
        here.client().get(f"{MAPS}/a")
    assert time.monotonic() - began < 5.0


def test_no_one_listening_is_away(tmp_path):
    path = kubeconfig(tmp_path / "config", "http://127.0.0.1:9")
    with pytest.raises(ApiUnavailable, match=r"http://127\.0\.0\.1:9 gave no answer"):
        connect({"KUBECONFIG": str(path)}, deadline_seconds=0.5).get(f"{MAPS}/a")


def test_door_that_closes_before_it_says_hello_is_away_and_no_matter_of_certificates(tmp_path):
    with FaultProxy("127.0.0.1", 9) as door:  # nobody listens behind it
        path = kubeconfig(tmp_path / "config", f"https://127.0.0.1:{door.port}")
        with pytest.raises(ApiUnavailable, match="gave no answer"):
            connect({"KUBECONFIG": str(path)}, deadline_seconds=0.5).get(f"{MAPS}/a")


def test_certificate_of_a_stranger_is_refused_not_waited_for(here, tmp_path):
    text = here.proxy.kubeconfig.read_text()
    stranger = tmp_path / "stranger"
    stranger.write_text(text.replace("certificate-authority:", "insecure-skip-tls-verify: false\n    # none:"))
    with pytest.raises(ConfigError, match="TLS failed"):
        connect({"KUBECONFIG": str(stranger)}).get(f"{MAPS}/a")


@pytest.mark.row("K1")
def test_thirty_percent_of_errors_change_no_outcome(here):
    here.proxy.book.set(HttpRule(action="answer", status=503, probability=0.3))
    client = here.client(deadline_seconds=60.0)
    for number in range(20):
        client.create(MAPS, config_map(f"m{number}"))
    assert here.names() == {f"m{number}" for number in range(20)}
    assert len(client.items(MAPS)[0]) == 20


@pytest.mark.parametrize("count", [15, pytest.param(1000, marks=pytest.mark.slow)])
@pytest.mark.row("K2", full="1,000 objects")
def test_lost_answers_of_creates_make_no_doubles(here, count):
    here.proxy.book.set(HttpRule(action="lose_answer", method="POST", probability=0.5))
    client = here.client(deadline_seconds=120.0)

    def make(number):
        try:
            made = client.create(MAPS, config_map(f"m{number}"))
        except ApiConflict:
            made = client.get(f"{MAPS}/m{number}")
        return made["metadata"]["uid"]

    with ThreadPoolExecutor(16) as threads:
        uids = set(threads.map(make, range(count)))
    assert len(here.names()) == len(uids) == count


def test_credentials_that_ended_are_read_again(tmp_path):
    server = FakeServer()
    tokens = {"first"}
    with serving(server, tokens=tokens) as url:
        path = kubeconfig(tmp_path / "config", url, user={"token": "first"})
        client = connect({"KUBECONFIG": str(path)})
        assert client.get("/api/v1/namespaces/default") is not None
        tokens.symmetric_difference_update({"first", "second"})
        kubeconfig(path, url, user={"token": "second"})
        assert client.get("/api/v1/namespaces/default") is not None
        tokens.clear()
        with pytest.raises(ApiForbidden, match="sign in again"):
            client.get("/api/v1/namespaces/default")


def test_namespace_is_that_of_the_context_unless_named(here):
    environ = {"KUBECONFIG": str(here.proxy.kubeconfig)}
    assert here.client().namespace == "gangs"
    assert connect(environ, namespace="other").namespace == "other"
    with pytest.raises(ConfigError, match=r"no context 'prod'; it has 'proxy'"):
        connect(environ, context="prod")


def test_no_cluster_at_all_is_a_sentence(tmp_path):
    with pytest.raises(ConfigError, match=r"no cluster is known: no kubeconfig at .*, and this is not a pod"):
        connect({"HOME": str(tmp_path)})


def test_kubeconfig_that_is_none_is_named(tmp_path):
    path = tmp_path / "config"
    path.write_text("just a word")
    with pytest.raises(ConfigError, match=r"kubeconfig .* cannot be used"):
        connect({"KUBECONFIG": str(path)})


def test_long_list_comes_in_pages_and_each_object_once():
    api = FakeApi()
    for number in range(1203):
        api.server.store.put(("configmaps", "gangs", f"m{number:04}"), config_map(f"m{number:04}"))
    asked = []
    api.hooks.append(lambda request, proceed: (asked.append(dict(request.query)), proceed())[1])
    found, version = api.items(MAPS, keep=lambda body: {"name": body["metadata"]["name"]})
    assert [each["name"] for each in found] == [f"m{number:04}" for number in range(1203)]
    assert [each["limit"] for each in asked] == ["500"] * 3
    assert int(version) == api.server.store.version


@pytest.mark.row("K3")
@pytest.mark.parametrize("times", [1, 9])
def test_list_that_the_server_forgets_halfway_is_asked_for_again(times):
    api = FakeApi()
    for number in range(700):
        api.server.store.put(("configmaps", "gangs", f"m{number:04}"), config_map(f"m{number:04}"))
    left = [times]

    def forget(request, proceed):
        if "continue" in request.query and left[0]:
            left[0] -= 1
            api.server.store.put(("configmaps", "gangs", "m0000"), config_map("m0000", left=str(left[0])))
            api.server.store.forget_history()
        return proceed()

    api.hooks.append(forget)
    assert len(api.items(MAPS)[0]) == 700


def test_list_of_what_is_not_served_is_refused():
    with pytest.raises(ApiRejected, match="nothing is served there"):
        FakeApi().items("/apis/kueue.x-k8s.io/v1beta2/workloads")


@pytest.mark.row("K3")
def test_watch_that_begins_too_early_is_gone():
    api = FakeApi()
    api.create(MAPS, config_map("a"))
    api.server.store.forget_history()
    with pytest.raises(ApiExpired, match="list again"):
        list(api.watch(MAPS, resource_version="1", seconds=1))


def test_right_that_is_missing_is_named_with_its_verb_and_resource():
    api = FakeApi()
    api.server.denied.add(("create", "configmaps"))
    with pytest.raises(ApiForbidden, match="lacks the right `create` on `configmaps`"):
        api.create(MAPS, config_map("a"))


def test_patch_whose_test_fails_is_a_conflict():
    api = FakeApi()
    api.create(MAPS, config_map("a", x="1"))
    with pytest.raises(ApiConflict, match="not as the patch expects it"):
        api.patch(f"{MAPS}/a", [{"op": "test", "path": "/data/x", "value": "2"}], kind="json")


def test_calls_are_counted_by_verb_and_resource():
    api = FakeApi()
    api.create(MAPS, config_map("a"))
    api.get(f"{MAPS}/a")
    list(api.logs("nobody"))
    assert api.calls == {("create", "configmaps"): 1, ("get", "configmaps"): 1, ("get", "pods/log"): 1}


def test_logs_continue_after_the_last_known_line_without_doubles():
    api = FakeApi()
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": []}}
    api.create("/api/v1/namespaces/gangs/pods", pod)
    lines = [(f"2026-01-01T00:00:0{second}.{nano:09}Z", f"{second} {nano}") for second in (1, 2) for nano in (5, 70)]
    api.server.logs["gangs", "p"] = lines
    assert list(api.logs("p")) == lines
    assert list(api.logs("p", since=lines[1][0])) == lines[2:]


def test_package_kubernetes_is_not_imported_before_a_cluster_is_asked_for():
    code = "import sys, gangline.launch.kubernetes.client.client; print('kubernetes' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ)
    assert done.stdout.strip() == "False"
