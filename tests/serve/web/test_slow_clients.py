"""Connections that only hold a place are closed; those that ask are answered, however often."""

import json
import socket
import threading
import time
from contextlib import suppress

import pytest
import uvicorn

from gangline.serve.web import slow_clients

ASK = b"GET / HTTP/1.1\r\nHost: here\r\n\r\n"


async def slow_app(scope, receive, send):
    await receive()
    await slow_clients.asyncio.sleep(0.6)
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


@pytest.fixture
def port(monkeypatch):
    monkeypatch.setattr(slow_clients, "HEAD_SECONDS", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as bound:
        config = uvicorn.Config(slow_app, http=slow_clients.TimedHttpProtocol, log_config=None, lifespan="off")
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]}, daemon=True)
        thread.start()
        yield bound.getsockname()[1]
        server.should_exit = True
        thread.join(10)


def connect(port):
    return socket.create_connection(("127.0.0.1", port), timeout=10)


@pytest.mark.parametrize("said", [b"", ASK[:-2], b"G"])
def test_a_head_that_does_not_end_is_not_waited_for(port, said):
    began = time.monotonic()
    with connect(port) as peer:
        peer.sendall(said)
        assert peer.recv(100) == b""
    assert time.monotonic() - began < 8


def test_what_is_not_http_is_refused_as_the_api_refuses(port):
    with connect(port) as peer:
        peer.sendall(ASK[:-2] + b"Content-Length: ten\r\n\r\n")
        answer = b"".join(iter(lambda: peer.recv(1000), b""))
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ")
    assert b"content-type: application/problem+json" in head
    assert json.loads(body)["status"] == 400


def test_dripping_bytes_buy_no_time(port):
    with connect(port) as peer:
        peer.settimeout(0.05)
        for letter in ASK[:-2]:
            with suppress(TimeoutError):
                peer.sendall(bytes([letter]))
                if peer.recv(100) == b"":
                    return
    raise AssertionError("the connection was still open")


def test_an_answer_may_take_longer_and_the_next_request_is_answered_too(port):
    with connect(port) as peer:
        for _ in range(2):
            peer.sendall(ASK)
            answer = b""
            while not answer.endswith(b"ok"):  # head and body may come apart
                piece = peer.recv(1000)
                assert piece, answer
                answer += piece
            assert b"200 OK" in answer
