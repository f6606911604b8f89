"""The manifests on the cluster of the tests, once a session."""

import time

import pytest
from tests.cluster.manifests.applied import applied
from tests.launch.kubernetes.mutations import good_pod

from gangline.launch.kubernetes.client.api import ApiRejected

PATIENCE_SECONDS = 60.0


@pytest.fixture(scope="session")
def site(cluster):
    with applied(cluster.kubeconfig) as each:
        yield each


def is_admitted(client, path, body):
    """By dry run."""
    try:
        client.create(path, body, dry_run=True)
    except ApiRejected:
        return False
    return True


@pytest.fixture(scope="session")
def guarded(site):
    """The site once its policies are in force: API servers read new ones within seconds."""
    tagged = good_pod()
    tagged["spec"]["containers"][0]["image"] = "registry.example.com/gangline:latest"
    strange = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "strange"}}
    of_gangs = f"/api/v1/namespaces/{site.gangs}"
    open_ = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "open"}, "spec": {"ports": [{"port": 443}]}}
    driver = site.account("gangline-driver")
    asked = ((site.admin, "pods", tagged), (driver, "secrets", strange), (driver, "services", open_))
    deadline = time.monotonic() + PATIENCE_SECONDS
    while any(is_admitted(client, f"{of_gangs}/{plural}", body) for client, plural, body in asked):
        assert time.monotonic() < deadline, "policies that are bound come into force"
        time.sleep(0.2)
    return site
