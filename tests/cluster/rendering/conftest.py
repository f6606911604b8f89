"""A real API server for what is rendered: objects are sent as dry runs, nothing is created but the namespace."""

import pytest

from gangline.launch.kubernetes.client import connect


@pytest.fixture(scope="module")
def api(cluster):
    """Client of a namespace that enforces PodSecurity `restricted`; gone afterwards."""
    name = cluster.namespace("rendering")
    yield connect({"KUBECONFIG": str(cluster.kubeconfig)}, namespace=name)
    cluster.delete(name)
