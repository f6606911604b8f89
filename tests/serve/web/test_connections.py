"""Connections that only hold a place are closed or give way; those that ask are answered, however often."""

import asyncio
import gc
import json
import socket
import threading
import time
from contextlib import ExitStack, suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.serve.world import served

from gangline.serve import server
from gangline.serve.web import connections
from gangline.serve.web.connections import FEW, make_room

ASK = b"GET / HTTP/1.1\r\nHost: here\r\n\r\n"
MOST = 16
"""Connections of the server that these tests start."""


async def slow_app(scope, receive, send):
    while (await receive()).get("more_body"):
        pass
    await asyncio.sleep(0.6)
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


@pytest.fixture
def port(monkeypatch):
    monkeypatch.setattr(connections, "HEAD_SECONDS", 0.3)
    monkeypatch.setattr(connections, "IDLE_SECONDS", 2)
    monkeypatch.setattr(connections, "LOOK_SECONDS", 0.1)
    monkeypatch.setattr(server, "CONNECTIONS", MOST)
    with served(slow_app) as url:
        yield int(url.rpartition(":")[2])


def connect(port, address="127.0.0.1"):
    return socket.create_connection(("127.0.0.1", port), timeout=10, source_address=(address, 0))


def answer_of(peer):
    answer = b""
    while not answer.endswith(b"ok"):  # head and body may come apart
        piece = peer.recv(1000)
        assert piece, answer
        answer += piece
    return answer


@pytest.mark.parametrize("said", [b"", ASK[:-2], b"G"])
def test_a_head_that_does_not_end_is_not_waited_for(port, said):
    began = time.monotonic()
    with connect(port) as peer:
        peer.sendall(said)
        assert peer.recv(100) == b""
    assert time.monotonic() - began < 8


@pytest.mark.parametrize("said", [ASK, b"POST / HTTP/1.1\r\nHost: here\r\nContent-Length: 9\r\n\r\nhalf", b"G"])
def test_a_connection_that_is_lost_takes_no_memory_until_its_time(port, monkeypatch, said):
    """Else one that comes again at once has as many bodies in memory as it has opened within that time."""
    monkeypatch.setattr(connections, "HEAD_SECONDS", 600)
    monkeypatch.setattr(connections, "IDLE_SECONDS", 600)
    for _ in range(4):
        with connect(port) as peer:
            peer.sendall(said)
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, connections._LINGER_ZERO)  # a reset, no goodbye
    deadline = time.monotonic() + 10
    while held := [each for each in gc.get_objects() if issubclass(type(each), connections.HttpConnection)]:
        assert time.monotonic() < deadline, f"{len(held)} lost connections are kept"
        del held
        time.sleep(0.1)
        gc.collect()


def drip(peer, words):
    """Whether the connection is closed before the last of the words was sent, one each 0.05 s."""
    peer.settimeout(0.05)
    with suppress(ConnectionError):
        for letter in words:
            with suppress(TimeoutError):
                peer.sendall(bytes([letter]))
                if peer.recv(100) == b"":
                    return True
        return False
    return True


def test_dripping_bytes_buy_no_time(port):
    with connect(port) as peer:
        assert drip(peer, ASK[:-2])


def test_dripping_bytes_after_an_answer_buy_no_time(port):
    with connect(port) as peer:
        peer.sendall(ASK)
        answer_of(peer)
        assert drip(peer, ASK[:-2] * 5)


def test_a_body_that_is_unread_holds_no_connection_after_its_answer(port):
    async def refuse(scope, receive, send):
        await send({"type": "http.response.start", "status": 404, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"ok"})

    with served(refuse) as url, connect(int(url.rpartition(":")[2])) as peer:
        peer.sendall(b"POST / HTTP/1.1\r\nHost: here\r\nContent-Length: 1000\r\n\r\n")
        answer_of(peer)
        assert drip(peer, b"x" * 200)


def test_little_is_read_at_once_however_much_has_come(port, monkeypatch):
    sizes = []

    class Noting(connections.HttpConnection):
        def data_received(self, data):
            sizes.append(len(data))
            super().data_received(data)

    monkeypatch.setattr(connections, "HttpConnection", Noting)
    words = b"POST / HTTP/1.1\r\nHost: here\r\nContent-Length: 60000\r\n\r\n" + b"x" * 60_000
    with served(slow_app) as url, connect(int(url.rpartition(":")[2])) as peer:
        peer.sendall(words)
        answer_of(peer)
    assert sum(sizes) == len(words)
    assert max(sizes) <= connections.READ_BYTES


def test_what_is_not_http_is_refused_as_the_api_refuses(port):
    with connect(port) as peer:
        peer.sendall(ASK[:-2] + b"Content-Length: ten\r\n\r\n")
        answer = b"".join(iter(lambda: peer.recv(1000), b""))
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ")
    assert b"content-type: application/problem+json" in head
    assert json.loads(body)["status"] == 400


def test_an_answer_may_take_longer_and_the_next_request_is_answered_too(port):
    with connect(port) as peer:
        for _ in range(2):
            peer.sendall(ASK)
            assert b"200 OK" in answer_of(peer)


@pytest.mark.parametrize("held", [b"", ASK[:-2], b"POST / HTTP/1.1\r\nHost: here\r\nContent-Length: 9\r\n\r\nx"])
def test_connections_that_are_held_give_way_and_those_that_are_answered_stay(port, held):
    entered, go_on = threading.Semaphore(0), threading.Event()

    async def patient_app(scope, receive, send):
        entered.release()
        while scope["method"] == "GET" and not go_on.is_set():
            await asyncio.sleep(0.01)
        await slow_app(scope, receive, send)

    with served(patient_app) as url, ExitStack() as stack:
        port = int(url.rpartition(":")[2])
        asking = [stack.enter_context(connect(port)) for _ in range(MOST - 2)]
        for peer in asking:
            peer.sendall(ASK)
            assert entered.acquire(timeout=10)
        holders = [stack.enter_context(connect(port, f"127.0.0.{2 + number % 3}")) for number in range(3 * MOST)]
        for holder in holders:
            with suppress(ConnectionError):  # it has given way
                holder.sendall(held)
        with connect(port, "127.0.0.9") as other:
            other.sendall(ASK)
            assert entered.acquire(timeout=10)
            go_on.set()
            assert all(b"200 OK" in answer_of(peer) for peer in [*asking, other])
        assert sum(is_closed(each) for each in holders) >= 2 * MOST


def test_behind_a_proxy_each_client_has_connections_of_its_own(port, monkeypatch):
    """All connections come from one address, and the first to come belongs to a client that has no other."""
    monkeypatch.setattr(connections, "FEW", 1)
    entered = threading.Semaphore(0)

    async def noting_app(scope, receive, send):
        entered.release()
        await slow_app(scope, receive, send)

    def begun(client):
        peer = stack.enter_context(connect(port))
        peer.sendall(
            f"POST / HTTP/1.1\r\nHost: here\r\nX-Forwarded-For: {client}\r\nContent-Length: 2\r\n\r\n".encode()
        )
        return peer

    with served(noting_app, proxies=["127.0.0.1"]) as url, ExitStack() as stack:
        port = int(url.rpartition(":")[2])
        modest = begun("198.51.100.1")
        assert entered.acquire(timeout=10)
        greedy = [begun("203.0.113.7") for _ in range(3 * MOST)]
        deadline = time.monotonic() + 20
        while sum(is_closed(each) for each in greedy) < 2 * MOST:
            assert time.monotonic() < deadline
        modest.sendall(b"ok")
        assert b"200 OK" in answer_of(modest)


def is_closed(peer):
    peer.settimeout(0.1)
    try:
        return peer.recv(100) == b""
    except TimeoutError:
        return False
    except ConnectionError:
        return True


class Peer:
    """A connection, of which nothing is open."""

    def __init__(self, address, *, since, is_waiting=True):
        self.address, self.since, self.is_waiting, self.place, self.is_open = address, since, is_waiting, 0, True

    def give_way(self):
        self.is_open = False


peers = st.builds(
    Peer, st.sampled_from(["a", "b", "c"]), since=st.floats(0, 10), is_waiting=st.sampled_from([True, True, False])
)


@given(st.lists(peers, min_size=1, max_size=6 * FEW))
def test_an_eighth_of_those_that_wait_gives_way_and_none_that_is_answered(found):
    make_room(found)
    waiting = [each for each in found if each.is_waiting]
    closed = [each for each in found if not each.is_open]
    assert all(each.is_waiting for each in closed)
    assert len(closed) == (max(1, len(waiting) // 8) if waiting else 0)


def test_who_has_most_gives_way_and_there_the_longest_wait():
    many = [Peer("many", since=second) for second in range(4 * FEW)]
    few = [Peer(f"few {number}", since=0) for number in range(4 * FEW)]
    make_room([*few, *many])
    assert all(each.is_open for each in few)
    assert [each.is_open for each in many] == [False] * FEW + [True] * 3 * FEW


def test_among_addresses_with_few_the_longest_wait_gives_way():
    """A client with some requests at a time is not worse off than one with a single connection."""
    attackers = [Peer(f"holder {second}", since=second) for second in range(30)]
    honest = [Peer("honest", since=30 + second) for second in range(FEW - 1)]
    make_room([*honest, *attackers])
    assert all(each.is_open for each in honest)
