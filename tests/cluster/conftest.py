"""The cluster of the tests, one a session. Mark a test that asks for it with `cluster`."""

import pytest


@pytest.fixture(scope="session")
def cluster():
    """A running `Cluster`, or a skip that says why there is none."""
    from tests.cluster.cluster import open_cluster  # here: it knows images and stores, which take time to load

    yield from open_cluster()


@pytest.fixture
def namespace(request, cluster):
    """A namespace of this test; it and everything in it is gone afterwards."""
    made = cluster.namespace(request.node.name)
    yield made
    cluster.delete(made)
