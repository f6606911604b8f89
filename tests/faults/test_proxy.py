"""The fault proxy between a real client and a real server."""

import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import urllib3
from urllib3.exceptions import HTTPError, NewConnectionError, ProtocolError, ReadTimeoutError

from gangline.errors import UsageError
from gangline.faults.proxy import FaultProxy, FaultRule


class _Echo(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_PUT(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.bodies.append(body)
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class _Server(ThreadingHTTPServer):
    def handle_error(self, request, client_address):
        """A connection that the proxy cut is what these tests are about."""


@pytest.fixture
def server():
    with _Server(("127.0.0.1", 0), _Echo) as server:
        server.bodies = []
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def proxied(server):
    """Starts a proxy before the server with the rules it is called with."""
    proxies = []

    def start(*rules, seed=0):
        proxies.append(FaultProxy("127.0.0.1", server.server_port, rules=rules, seed=seed).__enter__())
        return proxies[-1]

    yield start
    for each in proxies:
        each.__exit__(None, None, None)


@pytest.fixture
def client():
    with urllib3.PoolManager(retries=False, timeout=5) as pool:
        yield lambda proxy, body=b"hello", **options: pool.request("PUT", proxy.endpoint, body=body, **options)


def test_without_rules_everything_passes(proxied, client, server):
    proxy = proxied()
    big = bytes(range(256)) * 4096
    assert client(proxy, big).data == big
    assert client(proxy).data == b"hello"
    assert proxy.requests == 2
    assert proxy.strikes == []
    assert proxy.passed["down"] > len(big)


def test_answer_replaces_the_server(proxied, client, server):
    proxy = proxied(FaultRule(action="answer", on_request=2))
    assert [client(proxy).status for _ in range(3)] == [200, 503, 200]
    assert len(server.bodies) == 2
    assert [(strike.request, strike.rule.action) for strike in proxy.strikes] == [(2, "answer")]


def test_answer_after_commit_lets_the_server_do_it(proxied, client, server):
    proxy = proxied(FaultRule(action="answer", direction="down", on_request=1, status=500))
    assert client(proxy).status == 500
    assert server.bodies == [b"hello"]


def test_reset_after_commit_lets_the_server_do_it(proxied, client, server):
    proxy = proxied(FaultRule(action="reset", direction="down", on_request=1))
    with pytest.raises(ProtocolError, match="reset"):
        client(proxy)
    assert server.bodies == [b"hello"]


def test_cut_lets_exactly_so_many_bytes_pass(proxied, client, server):
    proxy = proxied(FaultRule(action="cut", after_bytes=50_000))
    with pytest.raises(HTTPError):
        client(proxy, b"x" * 200_000)
    assert proxy.passed["up"] == 50_000
    assert [strike.passed_bytes for strike in proxy.strikes] == [50_000]
    assert client(proxy).data == b"hello"


def test_cut_of_the_answer_tears_it(proxied, client):
    proxy = proxied(FaultRule(action="cut", direction="down", after_bytes=10_000))
    with pytest.raises(ProtocolError):
        client(proxy, b"x" * 100_000)
    assert proxy.passed["down"] == 10_000


def test_swallowed_request_is_never_answered(proxied, client, server):
    proxy = proxied(FaultRule(action="swallow", on_request=1))
    with pytest.raises(ReadTimeoutError):
        client(proxy, timeout=0.3)
    assert server.bodies == []
    assert client(proxy).data == b"hello"


def test_delay_holds_the_request_back(proxied, client):
    proxy = proxied(FaultRule(action="delay", on_request=1, seconds=0.3))
    began = time.monotonic()
    assert client(proxy).data == b"hello"
    assert time.monotonic() - began >= 0.3


def test_throttle_slows_the_connection(proxied, client):
    proxy = proxied(FaultRule(action="throttle", on_request=1, bytes_per_second=100_000))
    began = time.monotonic()
    assert client(proxy, b"x" * 40_000).status == 200
    assert 0.3 <= time.monotonic() - began < 4


def test_probability_is_replayed_by_its_seed(proxied, client):
    def faulty(seed):
        proxy = proxied(FaultRule(action="answer", probability=0.3), seed=seed)
        return [client(proxy).status == 503 for _ in range(30)]

    first = faulty(1)
    assert 0 < sum(first) < 30
    assert faulty(1) == first
    assert faulty(2) != first


def test_new_rules_count_from_zero(proxied, client):
    proxy = proxied()
    client(proxy)
    proxy.set_rules(FaultRule(action="answer", on_request=1))
    assert [client(proxy).status for _ in range(2)] == [503, 200]
    proxy.set_rules()
    assert client(proxy).status == 200


def test_shut_proxy_is_a_server_that_went_away(proxied, client, server):
    proxy = proxied()
    idle = socket.create_connection(("127.0.0.1", proxy.port), timeout=5)
    port = proxy.port
    client(proxy)
    proxy.shut()
    assert idle.recv(1) == b""
    idle.close()
    with pytest.raises(NewConnectionError):
        client(proxy)
    proxy.open()
    assert proxy.port == port
    assert client(proxy).data == b"hello"


def test_server_that_is_away_closes_the_clients_connection(client):
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        with FaultProxy("127.0.0.1", nobody.getsockname()[1]) as proxy, pytest.raises(ProtocolError):
            client(proxy)


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({}, "found 0"),
        ({"on_request": 1, "after_bytes": 1}, "found 2"),
        ({"on_request": 1, "action": "delay"}, "seconds > 0"),
        ({"on_request": 1, "action": "throttle"}, "bytes_per_second > 0"),
    ],
)
def test_rule_that_means_nothing_is_refused(wrong, named):
    with pytest.raises(UsageError, match=named):
        FaultRule(**{"action": "cut", **wrong})
