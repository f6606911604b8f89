"""The Slurm of the tests for this folder: started once, idle between tests."""

import pytest
from tests.launch.slurm.cluster.slurm_cluster import open_slurm


@pytest.fixture(scope="session")
def slurm(tmp_path_factory):
    yield from open_slurm(tmp_path_factory.mktemp)
