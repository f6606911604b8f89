"""A real API server for what is rendered: objects are sent as dry runs, into a namespace that our manifests set up."""

import time

import pytest
from tests.cluster.manifests.applied import applied
from tests.launch.kubernetes.mutations import good_pod

from gangline.launch.kubernetes.client.api import ApiRejected
from gangline.launch.kubernetes.client.client import connect

SECONDS = 60.0
"""How long a new admission policy may take to be in force."""


@pytest.fixture(scope="package")
def api(cluster):
    """Client of a namespace under PodSecurity `restricted` and our admission policy; gone afterwards."""
    with applied(cluster.kubeconfig) as site:
        found = connect({"KUBECONFIG": str(cluster.kubeconfig)}, namespace=site.gangs)
        await_policy(found)
        yield found


def await_policy(api):
    pod = good_pod()
    pod["spec"]["containers"][0]["image"] = "by-tag:latest"
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        try:
            api.create(f"/api/v1/namespaces/{api.namespace}/pods", pod, dry_run=True)
        except ApiRejected as error:
            assert "gangline: images are named by digest" in str(error)  # noqa: PT017 -- it is waited for
            return
        time.sleep(0.2)
    raise AssertionError(f"the admission policy is not in force after {SECONDS:g} s")
