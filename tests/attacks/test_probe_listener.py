"""Clients without the secret of a probe listener hold connections and drip: others are answered."""

import socket
import threading
import time
from contextlib import suppress

import pytest
from tests.contracts.launcher.gangs import poll

from gangline.fabric.probe import listener as listener_module
from gangline.fabric.probe.client import ask
from gangline.fabric.probe.listener import MOST_UNSIGNED, Listener

pytestmark = pytest.mark.row("C8")
SECRET = b"a secret of some length"
PROBE = {"do": "probe", "targets": [], "seconds": 0.0, "flows": 1}


@pytest.fixture
def listener():
    made = Listener(secret=SECRET)
    yield made
    made.close()


@pytest.fixture
def hold(listener):
    held = []

    def connect(count):
        held.extend(socket.create_connection(listener.address) for _ in range(count))
        return held

    yield connect
    for each in held:
        each.close()


def test_a_crowd_of_connections_has_few_threads_and_hinders_no_one(listener, hold, monkeypatch):
    monkeypatch.setattr(listener_module, "TIMEOUT_SECONDS", 600.0)  # no time ends one: the next does
    before = threading.active_count()
    held = hold(4 * MOST_UNSIGNED)
    assert ask(listener.address, SECRET, PROBE, timeout_seconds=60) == {"results": []}
    assert threading.active_count() - before <= MOST_UNSIGNED + 2
    poll(lambda: sum(map(is_ended, held)) >= 2 * MOST_UNSIGNED, seconds=20)


def test_a_request_that_drips_is_not_waited_for(listener, hold, monkeypatch):
    monkeypatch.setattr(listener_module, "TIMEOUT_SECONDS", 0.6)
    (held,) = hold(1)
    began = time.monotonic()
    with suppress(OSError):
        while not is_ended(held) and time.monotonic() < began + 20:
            held.send(b"x")
            time.sleep(0.05)
    assert time.monotonic() - began < 10


def is_ended(connection):
    """It was closed from the other side."""
    connection.settimeout(0.01)
    try:
        while connection.recv(4096):
            pass
    except TimeoutError:
        return False
    except OSError:
        return True
    return True
