"""A real API server for what is rendered: objects are sent as dry runs, nothing is created but the namespace."""

import os
import uuid

import pytest

from gangline.launch.kubernetes.client import connect


@pytest.fixture(scope="session")
def kubeconfig(request):
    """That of a cluster the environment names, else of our own."""
    named = os.environ.get("GANGLINE_TEST_KUBECONFIG")
    return named or str(request.getfixturevalue("cluster").kubeconfig)


@pytest.fixture(scope="session")
def api(kubeconfig):
    """Client of a namespace that enforces PodSecurity `restricted`; gone afterwards."""
    name = f"rendering-{uuid.uuid4().hex[:8]}"
    found = connect({"KUBECONFIG": kubeconfig}, namespace=name)
    enforce = {
        "pod-security.kubernetes.io/enforce": "restricted",
        "pod-security.kubernetes.io/enforce-version": "latest",
    }
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": enforce}}
    found.create("/api/v1/namespaces", namespace)
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "gangline-gang"}}
    found.create(f"/api/v1/namespaces/{name}/serviceaccounts", account)
    yield found
    found.delete(f"/api/v1/namespaces/{name}")
