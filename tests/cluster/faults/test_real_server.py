"""Client and informer through the proxy of faults, before a real API server."""

import os
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.cluster.faults.proxy.proxy import ApiFaultProxy
from tests.cluster.faults.proxy.rules import HttpRule

from gangline.launch.kubernetes.client import client as client_module
from gangline.launch.kubernetes.client.api import ApiConflict, ApiUnavailable
from gangline.launch.kubernetes.client.client import connect
from gangline.launch.kubernetes.client.informer import Informer
from gangline.launch.kubernetes.cluster.facts import read_facts

pytestmark = pytest.mark.cluster
PATIENCE_SECONDS = 60.0
FAULTS = {
    "none": HttpRule(action="hold", path="nothing is called so"),
    "cut": HttpRule(action="cut_watch", after=2),
    "silent death": HttpRule(action="stall_watch", after=2, seconds=60.0),
    "every second event lost": HttpRule(action="thin_watch"),
    "bookmarks only": HttpRule(action="bookmarks_only"),
    "reordered": HttpRule(action="reorder_watch"),
    "410 of the server's own": HttpRule(action="old_version", times=3),
    "5xx": HttpRule(action="answer", status=500, times=5),
}


def config_map(name):
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": {"a": "b"}}}


@pytest.fixture
def proxy(cluster, tmp_path):
    with ApiFaultProxy(cluster.kubeconfig, tmp_path) as each:
        yield each


def through(proxy, namespace, *, deadline_seconds=20.0):
    environ = {**os.environ, "KUBECONFIG": str(proxy.kubeconfig)}
    return connect(environ, namespace=namespace, deadline_seconds=deadline_seconds)


def maps(namespace):
    return f"/api/v1/namespaces/{namespace}/configmaps"


def names(found):
    return {each["metadata"]["name"] for each in found}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.row("K3")
def test_list_equals_the_servers_and_no_deletion_is_lost(fault, proxy, cluster, namespace, monkeypatch):
    monkeypatch.setattr(client_module, "SILENCE_SECONDS", 1.5)
    direct = connect({"KUBECONFIG": str(cluster.kubeconfig)}, namespace=namespace)
    path = maps(namespace)
    proxy.book.set(FAULTS[fault])
    with Informer(through(proxy, namespace), path, labels="a=b", relist_seconds=2.0) as informer:
        assert informer.is_listed.wait(PATIENCE_SECONDS)
        for number in range(20):
            direct.create(path, config_map(f"m{number}"))
            if number % 2:
                direct.delete(f"{path}/m{number - 1}")
        wanted = names(direct.items(path, labels="a=b")[0])
        deadline = time.monotonic() + PATIENCE_SECONDS
        while names(informer.objects()) != wanted:
            assert time.monotonic() < deadline, f"held {names(informer.objects())}, the server has {wanted}"
            time.sleep(0.05)
    assert bool(proxy.book.strikes) is (fault != "none")


@pytest.mark.row("K1")
def test_errors_and_throttling_change_no_outcome(proxy, namespace):
    proxy.book.set(
        HttpRule(action="answer", status=429, retry_after_seconds=1, times=1),
        HttpRule(action="answer", status=503, probability=0.3),
    )
    client = through(proxy, namespace, deadline_seconds=60.0)
    for number in range(20):
        client.create(maps(namespace), config_map(f"m{number}"))
    assert len(client.items(maps(namespace), labels="a=b")[0]) == 20
    assert len(proxy.book.strikes) > 3


@pytest.mark.parametrize("count", [30, pytest.param(1000, marks=pytest.mark.slow)])
@pytest.mark.row("K2")
def test_lost_answers_of_creates_make_no_doubles(count, proxy, namespace):
    proxy.book.set(HttpRule(action="lose_answer", method="POST", probability=0.5))
    client = through(proxy, namespace, deadline_seconds=60.0)

    def make(number):
        try:
            made = client.create(maps(namespace), config_map(f"m{number}"))
        except ApiConflict:
            made = client.get(f"{maps(namespace)}/m{number}")
        return made["metadata"]["uid"]

    with ThreadPoolExecutor(16) as threads:
        uids = set(threads.map(make, range(count)))
    assert len(uids) == count
    assert uids == {each["metadata"]["uid"] for each in client.items(maps(namespace), labels="a=b")[0]}


@pytest.mark.row("K2")
def test_patch_whose_answer_is_lost_is_away_and_done_once(proxy, namespace):
    client = through(proxy, namespace)
    client.create(maps(namespace), config_map("m"))
    proxy.book.set(HttpRule(action="lose_answer", method="PATCH", times=1))
    with pytest.raises(ApiUnavailable):
        client.patch(f"{maps(namespace)}/m", {"data": {"x": "1"}})
    assert client.get(f"{maps(namespace)}/m")["data"] == {"x": "1"}


def test_facts_of_a_real_cluster_name_what_it_serves(cluster, namespace):
    facts = read_facts(connect({"KUBECONFIG": str(cluster.kubeconfig)}, namespace=namespace))
    assert {"v1/pods", "batch/v1/jobs", "networking.k8s.io/v1/networkpolicies"} <= set(facts.served)
    assert facts.api_addresses
    assert (facts.trainer is not None) is any(each.endswith("/trainjobs") for each in facts.served)
