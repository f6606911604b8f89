import pytest
from tests.line.build import registries


@pytest.fixture(scope="session")
def registry_host(tmp_path_factory):
    with registries.serving(tmp_path_factory.mktemp("registry")) as host:
        yield host
