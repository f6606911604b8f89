"""Refusals before a body is read: by size, number, time and token."""

import asyncio
import json

import pytest

from gangline.infer.batch_queue import Counts
from gangline.infer.limits import Limits, LimitsMiddleware


class App:
    """Answers 200 with the length of the body, and remembers what reached it."""

    def __init__(self):
        self.bodies, self.headers, self.holds = [], [], None

    async def __call__(self, scope, receive, send):
        message = await receive() if scope["method"] == "POST" else {}
        self.bodies.append(message.get("body"))
        self.headers.append(dict(scope["headers"]))
        if self.holds is not None:
            await self.holds.wait()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"{}"})


class Server:
    def __init__(self, **limits):
        self.app, self.counts, self.is_draining = App(), Counts(), False
        wanted = {"max_request_bytes": 100, "most_requests": 2} | limits
        self.middleware = LimitsMiddleware(
            self.app, limits=Limits(**wanted), counts=self.counts, is_draining=lambda: self.is_draining
        )

    async def ask(self, *pieces, path="/v2/models/m/infer", method="POST", headers=(), stalls=False):
        """(status, answer, pieces that were read)."""
        sent, read = [], []

        async def receive():
            if stalls:
                await asyncio.sleep(60)
            read.append(pieces[len(read)])
            return {"type": "http.request", "body": read[-1], "more_body": len(read) < len(pieces)}

        async def send(message):
            sent.append(message)

        scope = {"type": "http", "method": method, "path": path, "headers": list(headers)}
        await self.middleware(scope, receive, send)
        return sent[0]["status"], dict(sent[0]["headers"]), len(read), json.loads(sent[1]["body"])


def ask(server, *pieces, **words):
    return asyncio.run(server.ask(*pieces, **words))


def test_a_body_that_says_it_is_too_large_is_not_read():
    server = Server()
    status, _, pieces_read, answer = ask(server, b"x" * 101, headers=[(b"content-length", b"101")])
    assert (status, pieces_read, server.app.bodies) == (413, 0, [])
    assert answer == {"error": "a request has at most 100 bytes"}


def test_a_body_that_says_nothing_is_read_no_further_than_it_may():
    server = Server()
    status, _, pieces_read, _ = ask(server, *[b"x" * 60] * 50)
    assert (status, pieces_read, server.app.bodies) == (413, 2, [])


def test_a_stalled_body_ends():
    server = Server(body_seconds=0.05)
    assert ask(server, b"x", stalls=True)[0] == 408
    assert ask(server, b"x")[0] == 200


def test_one_request_too_many_is_refused_with_the_time_to_come_again():
    async def scene():
        server = Server()
        server.app.holds = asyncio.Event()
        held = [asyncio.create_task(server.ask(b"{}")) for _ in range(2)]
        await asyncio.sleep(0.01)
        status, headers, pieces_read, _ = await server.ask(b"{}")
        assert (status, headers[b"retry-after"], pieces_read, server.counts.refused) == (429, b"1", 0, 1)
        server.app.holds.set()
        assert [(await each)[0] for each in held] == [200, 200]
        assert (await server.ask(b"{}"))[0] == 200

    asyncio.run(scene())


def test_without_the_token_nothing_is_read_and_probes_need_none():
    server = Server(token="right")
    assert ask(server, b"{}")[0] == 401
    assert ask(server, b"{}", headers=[(b"authorization", b"Bearer wrong")])[0] == 401
    assert server.app.bodies == []
    assert ask(server, b"{}", headers=[(b"authorization", b"Bearer right")])[0] == 200
    assert ask(server, path="/v2/models/m", method="GET")[0] == 401
    assert ask(server, path="/v2/health/ready", method="GET")[0] == 200


@pytest.mark.parametrize("path", ["/v2/repository/models/m/unload", "/v1/models/m:predict"])
def test_callers_cannot_unload_the_model(path):
    server = Server()
    assert ask(server, b"{}", path=path)[0] == 404
    assert server.app.bodies == []


def test_a_draining_server_is_not_ready():
    server = Server()
    server.is_draining = True
    assert ask(server, path="/v2/health/ready", method="GET")[0] == 503


def test_curl_sends_json():
    server = Server()
    ask(server, b"{}", headers=[(b"content-type", b"application/x-www-form-urlencoded")])
    ask(
        server,
        b"{}",
        headers=[(b"content-type", b"application/octet-stream"), (b"inference-header-content-length", b"2")],
    )
    assert [each[b"content-type"] for each in server.app.headers] == [b"application/json", b"application/octet-stream"]
