"""What a site applies first, before a real API server: by dry run, every kind known and every field as it should be.

The namespaces are made, for a dry run makes none that what is in them could be checked against; the server has none of
Prometheus-operator's kinds.
"""

import json
import secrets

import pytest
from tests.cluster.manifests.applied import renamed
from tests.manifests.rendered import SOURCES, objects

pytestmark = pytest.mark.cluster
OF_MONITORING = {"PodMonitor", "PrometheusRule"}
APPLIED = [name for name in SOURCES if name != "monitoring"]


@pytest.fixture(scope="module")
def word(cluster):
    """In the names of the namespaces."""
    made = secrets.token_hex(3)
    yield made
    names = [f"gangline-{made}", f"gangline-system-{made}", f"kubeflow-{made}"]
    cluster.kubectl.run("delete", "namespace", "--ignore-not-found", "--wait=false", *names)


@pytest.fixture(scope="module")
def queues(cluster):
    with cluster.lend_kinds_of_kueue():
        yield


def dry_run(cluster, things):
    reported = json.dumps({"apiVersion": "v1", "kind": "List", "items": things})
    words = ("apply", "--server-side", "--dry-run=server", "--validate=strict", "-o", "name", "-f", "-")
    return cluster.kubectl.run(*words, feed=reported).split()


@pytest.mark.parametrize("name", APPLIED)
def test_overlay_applies_without_the_kinds_of_prometheus_operator(cluster, queues, word, name):
    assert not cluster.serves("podmonitors.monitoring.coreos.com")
    things = [renamed(each, word) for each in objects(name)]
    assert OF_MONITORING.isdisjoint(each["kind"] for each in things)
    homes = {each["metadata"].get("namespace") for each in things} - {None}
    cluster.kubectl.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": home}} for home in homes)
    assert len(dry_run(cluster, things)) == len(things)
