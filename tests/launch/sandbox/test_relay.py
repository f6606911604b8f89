"""The way of a fork's gang to its store: by a socket, to one address, for as long as the gang lives."""

import subprocess
import sys
from secrets import token_bytes

import pytest
from tests.contracts.launcher.gangs import poll

from gangline import procfs
from gangline.errors import StorageError
from gangline.faults.s3_gateway import S3Gateway
from gangline.storage.folder.store import FolderStore
from gangline.storage.open import open_store
from gangline.storage.s3.unix_socket import SOCKET

pytestmark = pytest.mark.row("P5")


@pytest.fixture
def served():
    """The process that a relay is there for."""
    with subprocess.Popen(["sleep", "600"]) as process:
        yield process
        process.kill()


def test_a_store_is_reached_by_the_socket_until_the_gang_ends(tmp_path, served):
    folder = tmp_path / ("deep" * 30)  # longer than the path of a socket may be
    folder.mkdir()
    with S3Gateway(FolderStore(tmp_path / "store")) as gateway:
        words = [str(folder), "127.0.0.1", str(gateway.port), str(served.pid), str(procfs.start_time(served.pid))]
        relay = subprocess.Popen([sys.executable, "-m", "gangline.launch.sandbox.relay", *words])
        poll((folder / SOCKET).is_socket)
        url = S3Gateway.url(gateway.port).replace("127.0.0.1", "store.invalid")
        store = open_store(url, credentials=gateway.credentials, deadline_seconds=2, socket_folder=folder)
        data = token_bytes(1 << 20)
        store.put("a/b", data)
        assert store.get("a/b").data == data
        served.kill()
        served.wait()
        assert relay.wait(10) == 0
        with pytest.raises(StorageError):
            store.get("a/b")
