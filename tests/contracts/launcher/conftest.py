"""Launchers to hold to the contract; nothing of them is left afterwards."""

import threading

import pytest
from tests.cluster.cluster import open_cluster
from tests.contracts.launcher.gangs import Stand, sandbox_here
from tests.contracts.launcher.stands import ClusterStand, FakeStand, PodlessStand
from tests.launch.slurm.cluster.slurm_cluster import open_slurm
from tests.launch.slurm.cluster.stand import SlurmStand

_SLOW_ROOTS = [pytest.param(kind, marks=[pytest.mark.cluster, pytest.mark.slow]) for kind in ("jobset", "trainjob")]

_OWN = pytest.param("own", marks=pytest.mark.long)  # of the two sandboxes the one that holds less


_SLURM = pytest.param("slurm", marks=pytest.mark.tools)
_JOB = pytest.param("job", marks=pytest.mark.cluster)


@pytest.fixture(params=["local", _OWN, "fork", "fake", _SLURM, _JOB, *_SLOW_ROOTS])
def stand(request, tmp_path):
    """Each launcher in turn, for what the protocol promises."""
    made = _make(request, tmp_path)
    yield made
    made.close()


@pytest.fixture
def local(tmp_path):
    made = Stand(tmp_path)
    yield made
    made.close()


@pytest.fixture
def fake(tmp_path):
    made = FakeStand(tmp_path)
    yield made
    made.close()


@pytest.fixture
def podless(tmp_path):
    return PodlessStand(tmp_path)


@pytest.fixture
def alive(podless):
    """A stand without pods whose controllers work by themselves."""
    over = threading.Event()

    def work():
        while not over.wait(0.02):
            podless.turn()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    yield podless
    over.set()
    thread.join()


@pytest.fixture(scope="session")
def cluster():
    """A running cluster, or a skip that says why there is none."""
    yield from open_cluster()


@pytest.fixture(scope="session")
def slurm(tmp_path_factory):
    yield from open_slurm(tmp_path_factory.mktemp)


def _make(request, tmp_path):
    if request.param in ("local", "fake"):
        return Stand(tmp_path) if request.param == "local" else FakeStand(tmp_path)
    if request.param in ("own", "fork"):
        return Stand(tmp_path, sandbox=sandbox_here(tmp_path, request.param))
    if request.param == "slurm":
        return SlurmStand(tmp_path, request.getfixturevalue("slurm"))
    cluster = request.getfixturevalue("cluster")
    cluster.demand(request.param)
    namespace = cluster.namespace(request.node.name)
    request.addfinalizer(lambda: cluster.delete(namespace))
    return ClusterStand(tmp_path, cluster, namespace, kind=request.param)
