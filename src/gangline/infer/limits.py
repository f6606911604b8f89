"""Refusals before a request's body is read: its size, the number of requests, the time they take, the token.

The memory of a server is bounded by these: at most `most_requests` bodies of at most `max_request_bytes` are held.
"""

import asyncio
import hmac
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from gangline.http.asgi import Message, Receive, replay
from gangline.infer.batch_queue import Counts

Send = Callable[[Message], Awaitable[None]]

_BINARY, _FORM = b"inference-header-content-length", b"application/x-www-form-urlencoded"
RETRY_AFTER = (b"retry-after", b"1")
_OPEN = ("/v2/health/", "/metrics")
"""Paths that probes and Prometheus ask without a token."""
_CLOSED = ("/v2/repository", "/v1/")
"""Routes of kserve that would let callers unload the model, or that speak another protocol."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """Bounds of what callers may ask."""

    max_request_bytes: int
    most_requests: int
    """Requests whose body is read, that wait or are answered."""
    body_seconds: float = 30.0
    """Time that a whole body may take."""
    token: str | None = None


class TooLargeError(Exception):
    """The body has more bytes than are read."""


class LimitsMiddleware:
    """ASGI application around kserve's."""

    def __init__(self, app: Any, *, limits: Limits, counts: Counts, is_draining: Callable[[], bool]) -> None:
        self._app, self._limits, self._counts, self._is_draining = app, limits, counts, is_draining
        self._num_requests = 0

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        path, headers = scope["path"], dict(scope["headers"])
        if path.startswith(_CLOSED):
            await _reply(send, 404, f"{path[:80]} is not served: POST /v2/models/NAME/infer is")
        elif path.startswith(_OPEN):
            if self._is_draining() and path.startswith("/v2/health/ready"):
                await _reply(send, 503, "the server ends")
            else:
                await self._app(scope, receive, send)
        elif not is_allowed(self._limits.token, headers.get(b"authorization", b"")):
            await _reply(send, 401, "wanted the header Authorization: Bearer TOKEN", (b"www-authenticate", b"Bearer"))
        elif scope["method"] == "GET":
            await self._app(scope, receive, send)
        elif (length := headers.get(b"content-length", b"")).isdigit() and int(length) > self._limits.max_request_bytes:
            await _reply(send, 413, self._too_large(), (b"connection", b"close"))
        elif self._num_requests >= self._limits.most_requests:
            self._counts.refused += 1
            await _reply(send, 429, f"{self._num_requests} requests wait or are answered", RETRY_AFTER)
        else:
            await self._answer(scope, receive, send)

    async def _answer(self, scope: Message, receive: Receive, send: Send) -> None:
        self._num_requests += 1
        try:
            body = await asyncio.wait_for(self._body(receive), self._limits.body_seconds)
        except TooLargeError:
            await _reply(send, 413, self._too_large(), (b"connection", b"close"))
        except TimeoutError:
            await _reply(
                send, 408, f"the body took longer than {self._limits.body_seconds:.0f} s", (b"connection", b"close")
            )
        else:
            if body is not None:
                await self._app(_with_json(scope), replay(body, receive), send)
        finally:
            self._num_requests -= 1

    async def _body(self, receive: Receive) -> bytes | None:
        """The whole body; None: the caller went away."""
        pieces, size = [], 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            pieces.append(message.get("body", b""))
            size += len(pieces[-1])
            if size > self._limits.max_request_bytes:
                raise TooLargeError
            if not message.get("more_body"):
                return b"".join(pieces)

    def _too_large(self) -> str:
        return f"a request has at most {self._limits.max_request_bytes} bytes"


def _with_json(scope: Message) -> Message:
    """The request as JSON, unless its headers say what else it is: `curl -d` names a form."""
    headers = dict(scope["headers"])
    if _BINARY in headers or headers.get(b"content-type", _FORM) != _FORM:
        return scope
    kept = [each for each in scope["headers"] if each[0] != b"content-type"]
    return {**scope, "headers": [*kept, (b"content-type", b"application/json")]}


def is_allowed(token: str | None, header: bytes) -> bool:
    """Whether an Authorization header has the token; without one everybody may call."""
    return token is None or hmac.compare_digest(header, b"Bearer " + token.encode())


async def _reply(send: Send, status: int, error: str, *headers: tuple[bytes, bytes]) -> None:
    body = json.dumps({"error": error}).encode()
    own = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode()), *headers]
    await send({"type": "http.response.start", "status": status, "headers": own})
    await send({"type": "http.response.body", "body": body})
