"""Follower that connects to its leader, against a listener in this process."""

import socket
import threading
from dataclasses import asdict

import pytest
from tests.keeper.coordination.nodes import KEY
from tests.ports import free_port

from gangline.keeper.coordination.control_port import PORT_FILE, find_port
from gangline.keeper.coordination.follower import Follower
from gangline.keeper.coordination.listener import ControlListener
from gangline.keeper.coordination.protocol import GenerationStart
from gangline.keeper.ipc.environment import KeeperEnvironment

ENVIRON = {
    "NODE_RANK": "1", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "1", "MASTER_ADDR": "gang-0.gang",
    "MASTER_PORT": "29500", "GANGLINE_RUN": "r", "GANGLINE_GANG": "g", "GANGLINE_HOME": "/h", "GANGLINE_PLAN": "/p",
    "GANGLINE_CODE": "/c", "GANGLINE_STORE": "file:/s", "GANGLINE_KEY_FILE": "/k",
}  # fmt: skip


class Host:
    """A keeper without ranks."""

    def __init__(self):
        self.follower = None
        self.reasons = []

    def wait(self, seconds):
        threading.Event().wait(min(seconds, 0.02))
        self.follower.poll()

    def own_stop_request(self):
        return None

    def set_waiting(self, reason):
        self.reasons.append(reason)

    def event(self, event, **values):
        pass


@pytest.fixture
def leader():
    """Listener that accepts one follower and tells it to start."""
    listener = ControlListener("127.0.0.1", free_port(), gang="g", num_nodes=2, key=lambda: KEY)
    over = threading.Event()
    channels = []

    def serve():
        while not over.wait(0.01):
            for _, channel in listener.poll():
                channels.append(channel)
                channel.send({"start": asdict(GenerationStart(generation=4, port=99)), "spent": 1})

    thread = threading.Thread(target=serve)
    thread.start()
    yield listener._listener.getsockname()[1]
    over.set()
    thread.join()
    listener.close()
    for each in channels:
        each.close()


@pytest.mark.parametrize(
    ("text", "found"),
    [(None, None), ("", None), ("29501", 29501), ("0", None), ("70000", None), ("x", None), ("2" * 10**6, None)],
    ids=["absent", "empty", "port", "zero", "large", "word", "long"],
)
def test_port_that_the_leader_has_taken_is_read_from_the_folder_of_the_gang(tmp_path, text, found):
    if text is not None:
        (tmp_path / PORT_FILE).write_text(text)
    environ = ENVIRON | {"GANGLINE_HOME": str(tmp_path), "GANGLINE_CONTROL_PORT": "0"}
    assert find_port(KeeperEnvironment.read(environ)) == found


def test_folder_in_the_place_of_that_file_holds_no_port(tmp_path):
    (tmp_path / PORT_FILE).mkdir()
    environ = ENVIRON | {"GANGLINE_HOME": str(tmp_path), "GANGLINE_CONTROL_PORT": "0"}
    assert find_port(KeeperEnvironment.read(environ)) is None


def test_name_that_appears_late_is_looked_up_until_it_is_there(leader, monkeypatch):
    environ = ENVIRON | {"GANGLINE_CONTROL_PORT": str(leader)}
    asked = []
    real = socket.getaddrinfo

    def resolve(host, *rest, **options):
        asked.append(host)
        if len(asked) < 5:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return real("127.0.0.1", *rest, **options)

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    host = Host()
    host.follower = Follower(KeeperEnvironment.read(environ), host, key=lambda: KEY)
    assert host.follower.next(None) == GenerationStart(generation=4, port=99)
    assert asked == ["gang-0.gang"] * 5
    assert any("Name or service not known" in reason for reason in host.reasons)
    host.follower._channel.close()
