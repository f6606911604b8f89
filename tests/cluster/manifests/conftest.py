"""The manifests on the cluster of the tests, once a session."""

import pytest
from tests.cluster.manifests.applied import applied


@pytest.fixture(scope="session")
def site(cluster):
    with applied(cluster.kubeconfig) as each:
        yield each
