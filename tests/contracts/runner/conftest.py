"""Runners to hold to the contract; nothing of them is left afterwards."""

import pytest
from tests.cluster.cluster import open_cluster
from tests.cluster.driver import driving, kubeconfig
from tests.contracts.runner.stands import ClusterPodStand, FakePodStand, LocalStand, closing


@pytest.fixture(params=["local", "fake", pytest.param("cluster", marks=pytest.mark.cluster)])
def stand(request, tmp_path):
    if request.param == "cluster":
        made = request.getfixturevalue("cluster_stand")
    else:
        made = (LocalStand if request.param == "local" else FakePodStand)(tmp_path)
    with closing(made):
        yield made


@pytest.fixture
def fake(tmp_path):
    with closing(FakePodStand(tmp_path)) as made:
        yield made


@pytest.fixture(scope="session")
def cluster():
    """A running cluster, or a skip that says why there is none."""
    yield from open_cluster()


@pytest.fixture(scope="session")
def cluster_stand(cluster, tmp_path_factory):
    with driving(cluster):
        namespace = cluster.namespace("runner")
        yield ClusterPodStand(cluster, namespace, kubeconfig(cluster, namespace, tmp_path_factory.mktemp("k") / "k"))
        cluster.delete(namespace)
