"""Fixtures for tests of every room: real object stores, one process a session."""

import gc
import importlib
import os
import signal
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("shared", deadline=None)  # a machine that others use, too, makes no example wrong
settings.register_profile("quarter", deadline=None, max_examples=25)  # `make test`; `make test-long` draws them all
settings.load_profile("shared")
sys.path.insert(
    0, str(Path(__file__).parent.parent)
)  # tests share helpers as packages: `tests.contracts.storage.servers`

servers = importlib.import_module("tests.contracts.storage.servers")
proofs = importlib.import_module("tests.proofs")
reached = proofs.reached


def pytest_addoption(parser):
    group = parser.getgroup("faults")
    group.addoption("--row", help="only tests of this row of the goal sheet, e.g. T1")
    group.addoption("--proofs", type=Path, help="write down what tests marked `proves` came to")
    group.addoption("--seed", type=int, default=0, help="seed of places, kills and delays; a failure prints its own")


def pytest_configure(config):
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as a shell's background job: what tests start would keep it
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if "GANGLINE_CACHE" not in os.environ:  # rates of this machine are measured once a session, by whoever is first
        folder = tempfile.TemporaryDirectory(prefix="gangline-cache-")
        os.environ["GANGLINE_CACHE"] = folder.name
        config.add_cleanup(folder.cleanup)
    if config.getoption("--proofs") and not hasattr(config, "workerinput"):
        partial = config.args_source is pytest.Config.ArgsSource.ARGS
        config.pluginmanager.register(proofs.Proofs(config.getoption("--proofs"), partial=partial))


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Nothing that collection makes is garbage: no collector looks at it, then or later."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(config, items):
    proofs.tell_claims(items)
    row = config.getoption("--row")
    if row:
        items[:] = [item for item in items if any(row in mark.args for mark in item.iter_markers("row"))]


@pytest.fixture(scope="session", autouse=True)
def temporary_folder(tmp_path_factory):
    """Where tests and all they start put what is temporary: what is left there goes with the folders of the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(tmp_path_factory.mktemp("tmp")))
        patch.setattr(tempfile, "tempdir", None)  # asked anew
        yield


@pytest.fixture(scope="session", autouse=True)
def without_syncs():
    """Files of tests outlive no power cut, so this process waits for no disk; tests of syncs watch the calls."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        yield


@pytest.fixture
def seed(request):
    return request.config.getoption("--seed")


@pytest.fixture(params=[pytest.param(name, marks=pytest.mark.tools) for name in ("minio", "versitygw")])
def s3_server(request):
    """Each of the real servers in turn."""
    return request.getfixturevalue(f"{request.param}_server")


@pytest.fixture(scope="session")
def minio_server(tmp_path_factory):
    """A MinIO; mark tests that ask for it with `tools`. Take a fresh prefix of `minio_server.store(prefix)`."""
    yield from _served("minio", tmp_path_factory)


@pytest.fixture(scope="session")
def hdfs(tmp_path_factory):
    """A real HDFS; mark tests that ask for it with `tools`, and take a fresh folder of it."""
    from tests.contracts.sources.hdfs import HdfsServer

    server = HdfsServer(tmp_path_factory.mktemp("hdfs"))
    yield server
    server.end()


@pytest.fixture(scope="session")
def versitygw_server(tmp_path_factory):
    """A Versity S3 gateway over a folder; mark tests that ask for it with `tools`."""
    yield from _served("versitygw", tmp_path_factory)


@pytest.fixture(scope="session")
def gitea():
    """A real Gitea; mark tests that ask for it with `tools`. Make users and repositories of your own."""
    from tests.forge.gitea import running

    with running() as server:
        yield server


def _served(name, tmp_path_factory):
    server = servers.S3Server(name, tmp_path_factory.mktemp(name)).start()
    try:
        yield server
    finally:
        server.stop()
