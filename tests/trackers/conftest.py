import os

import pytest
from tests.trackers.mlflow_server import MlflowServer


@pytest.fixture(autouse=True)
def environment():
    """Writers configure their libraries by variables, as a process of their own may; here they end with the test."""
    before = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture(scope="session")
def mlflow_server(tmp_path_factory):
    """One real server for all tests of the session; each test has an experiment of its own."""
    server = MlflowServer(tmp_path_factory.mktemp("mlflow")).start()
    yield server
    server.stop()


@pytest.fixture
def mlflow_client(mlflow_server, monkeypatch):
    """The library's own reader."""
    from mlflow.tracking import MlflowClient

    monkeypatch.setenv("MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", "true")
    return MlflowClient(mlflow_server.url, mlflow_server.url)
