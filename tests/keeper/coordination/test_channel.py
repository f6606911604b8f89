"""Control port and channel: authentication of followers, rejection of others."""

import json
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.keeper.coordination.nodes import KEY, poll
from tests.ports import free_port

from gangline.errors import CapacityError
from gangline.keeper.coordination import channel as wire
from gangline.keeper.coordination.channel import Channel, ChannelClosed
from gangline.keeper.coordination.listener import HANDSHAKE_SECONDS, MAX_PENDING, ControlListener, connect_to_leader


@pytest.fixture
def listener():
    listener = ControlListener("127.0.0.1", free_port(), gang="g", num_nodes=3, key=lambda: KEY)
    yield listener
    listener.close()


@pytest.fixture
def line():
    """Two ends of a channel and the leader's socket beneath, for what an attacker on the way may do."""
    here, there = socket.socketpair()
    leader, follower = Channel(here, key=b"c" * 32, leads=True), Channel(there, key=b"c" * 32, leads=False)
    yield leader, follower, here
    leader.close()
    follower.close()


def address(listener):
    return listener._listener.getsockname()


def connect(listener, *, node=1, gang="g", key=KEY):
    """A follower's call while the listener is polled: the leader's channel and the follower's."""
    found, errors = [], []

    def follow():
        try:
            found.append(connect_to_leader(address(listener), gang=gang, node=node, key=key, seconds=10))
        except ChannelClosed as error:
            errors.append(error)

    thread = threading.Thread(target=follow)
    thread.start()
    accepted = []
    while thread.is_alive() or (found and not accepted):
        accepted += listener.poll()
        time.sleep(0.005)
    thread.join()
    return accepted, found, errors


def test_who_knows_the_key_comes_in_under_its_node_and_both_can_speak(listener):
    [(node, leader)], [follower], _ = connect(listener, node=2)
    follower.send({"here": True})
    leader.send({"start": [1, "ü"]})
    poll(lambda: leader.receive() == [{"here": True}])
    poll(lambda: follower.receive() == [{"start": [1, "ü"]}])
    assert node == 2
    for each in (leader, follower):
        each.close()


@pytest.mark.parametrize("wrong", [{"key": b"other" * 8}, {"gang": "h"}, {"node": 3}, {"node": 0}, {"node": -1}])
def test_wrong_key_gang_or_node_is_sent_away(listener, wrong):
    accepted, found, [error] = connect(listener, **wrong)
    assert (accepted, found, listener.num_rejected) == ([], [], 1)
    assert "do both have the same key?" in str(error)


def test_stranger_at_the_leaders_address_learns_nothing_and_is_not_obeyed():
    with socket.create_server(("127.0.0.1", 0)) as server:
        heard = []

        def pretend():
            connection, _ = server.accept()
            with connection:
                connection.sendall(json.dumps({"gangline": 1, "nonce": "0" * 32}).encode() + b"\n")
                heard.append(connection.recv(4096))
                connection.sendall(json.dumps({"proof": "0" * 64}).encode() + b"\n")

        thread = threading.Thread(target=pretend)
        thread.start()
        with pytest.raises(ChannelClosed, match="cannot prove the gang's key"):
            connect_to_leader(server.getsockname(), gang="g", node=1, key=KEY, seconds=10)
        thread.join()
    assert KEY not in heard[0]
    assert KEY.hex().encode() not in heard[0]


@pytest.mark.parametrize(
    "words",
    [b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01" * 200 + b"\n", b"[1]\n", b"{}\n", b'{"node": true, "nonce": 1}\n',
     b'{"node": 1, "nonce": "n", "proof": "\xc3\xa9"}\n', b"[" * 1000 + b"\n", b"x" * 5000],
)  # fmt: skip
def test_garbage_is_sent_away_and_costs_a_kilobyte(listener, words):
    with socket.create_connection(address(listener)) as stranger:
        stranger.sendall(words)
        poll(lambda: listener.poll() == [] and listener.num_rejected)
        assert listener.handles() == [listener._listener.fileno()]
    assert comes_in(listener), "others do as before"


def test_endless_line_is_cut_off_after_a_kilobyte(listener):
    with socket.create_connection(address(listener)) as stranger:
        stranger.settimeout(0.05)
        sent = pour(stranger, listener)
    assert sent < 64 << 20, "what the kernel buffers, no gigabyte"


def test_silent_crowd_is_held_outside_and_does_not_keep_others_out_for_long(listener, monkeypatch):
    monkeypatch.setattr("gangline.keeper.coordination.listener.CROWDED_SECONDS", 0.05)
    crowd = [socket.create_connection(address(listener)) for _ in range(MAX_PENDING + 5)]
    listener.poll()
    assert len(listener.handles()) == MAX_PENDING, "connections that are not accepted yet wake nothing"
    assert comes_in(listener), "one that knows the key still does"
    now = time.monotonic() + HANDSHAKE_SECONDS + 1
    monkeypatch.setattr("gangline.keeper.coordination.listener.time.monotonic", lambda: now)
    listener.poll()
    assert len(listener.handles()) == 1
    for each in crowd:
        each.close()


def test_crowd_of_followers_that_come_together_comes_in_whole(monkeypatch):
    monkeypatch.setattr("gangline.keeper.coordination.listener.MAX_PENDING", 4)
    listener = ControlListener("127.0.0.1", free_port(), gang="g", num_nodes=41, key=lambda: KEY)
    follow = partial(connect_to_leader, address(listener), gang="g", key=KEY, seconds=30)
    with ThreadPoolExecutor(40) as pool:
        calls = [pool.submit(follow, node=node) for node in range(1, 41)]
        accepted = []
        poll(lambda: accepted.extend(listener.poll()) or len(accepted) == 40)
    assert sorted(node for node, _ in accepted) == list(range(1, 41))
    assert listener.num_rejected == 0
    for each in (*(channel for _, channel in accepted), *(each.result() for each in calls)):
        each.close()
    listener.close()


def test_port_in_use_is_said_so(listener):
    with pytest.raises(CapacityError, match="GANGLINE_CONTROL_PORT"):
        ControlListener("127.0.0.1", address(listener)[1], gang="g", num_nodes=2, key=lambda: KEY)


def test_no_one_there_is_said_so():
    with pytest.raises(ChannelClosed, match="does not answer"):
        connect_to_leader(("127.0.0.1", free_port()), gang="g", node=1, key=KEY, seconds=1)


@given(st.lists(st.dictionaries(st.text(), st.integers() | st.text() | st.booleans()), max_size=8))
def test_what_is_sent_is_received_in_order(messages):
    here, there = socket.socketpair()
    leader, follower = Channel(here, key=b"k", leads=True), Channel(there, key=b"k", leads=False)
    for each in messages:
        leader.send(each)
    leader.close()
    assert (follower.receive() if messages else []) == messages
    with pytest.raises(ChannelClosed):
        follower.receive()
    follower.close()


@pytest.mark.parametrize("crime", ["forge", "repeat", "leave out", "turn around", "flip"])
def test_line_that_was_tampered_with_ends_the_channel(line, crime):
    _, follower, beneath = line
    follower.send({"a": 1})
    follower.send({"b": 2})
    first, second = take_lines(beneath, 2)
    reported = {
        "forge": [b"0" * 32 + b' {"a":1}'],
        "repeat": [first, first],
        "leave out": [second],
        "turn around": [first],
        "flip": [first.replace(b"1", b"2")],
    }[crime]
    here, there = socket.socketpair()
    there.sendall(b"\n".join(reported) + b"\n")
    there.close()
    judge = Channel(here, key=b"c" * 32, leads=crime != "turn around")
    with pytest.raises(ChannelClosed, match="without the gang's seal"):
        judge.receive()
    judge.close()


def test_long_line_of_a_peer_ends_the_channel(line):
    leader, follower, _ = line
    beneath = follower._socket
    beneath.setblocking(True)
    sender = threading.Thread(target=lambda: beneath.sendall(b"x" * (wire.MESSAGE_BYTES + 100)))
    sender.start()
    with pytest.raises(ChannelClosed, match="a line of more than"):
        poll(leader.receive)
    leader.close()
    sender.join()


def comes_in(listener):
    [(_, leader)], [follower], _ = connect(listener)
    leader.close()
    follower.close()
    return True


def pour(stranger, listener):
    """Send a gigabyte while the listener is polled; how much went out before it was cut off."""
    for sent in range(1 << 10):
        listener.poll()
        try:
            stranger.send(b"x" * (1 << 20))
        except TimeoutError:
            continue
        except OSError:
            return sent << 20
    return 1 << 30


def take_lines(connection, count):
    connection.setblocking(True)
    buffer = bytearray()
    while buffer.count(b"\n") < count:
        buffer += connection.recv(4096)
    return bytes(buffer).split(b"\n")[:count]
