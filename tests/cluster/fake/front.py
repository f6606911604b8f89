"""The fake server behind real HTTP on a loopback port, for what only a wire can show. A context manager."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import yaml
from tests.cluster.fake.refusal import Refusal
from tests.cluster.fake.server import Asked, FakeServer
from tests.loopback import listening

_PAUSE_SECONDS = 0.02
BOOKMARK_SECONDS = 0.5
_UNKNOWN = {"kind": "Status", "status": "Failure", "message": "Unauthorized", "reason": "Unauthorized", "code": 401}


@contextmanager
def serving(server: FakeServer, *, tokens: set[str] | None = None) -> Iterator[str]:
    """URL at which `server` answers; to those who bring one of `tokens`, if there are any."""
    handler = type("Handler", (_Handler,), {"fake": server, "tokens": tokens})
    with listening(handler) as url:
        yield url


def kubeconfig(path: Path, url: str, *, namespace: str = "gangs", user: dict[str, Any] | None = None) -> Path:
    """Write a kubeconfig for the server at `url`."""
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "fake", "cluster": {"server": url}}],
        "users": [{"name": "fake", "user": user or {"token": "a-token"}}],
        "contexts": [{"name": "fake", "context": {"cluster": "fake", "user": "fake", "namespace": namespace}}],
        "current-context": "fake",
    }
    path.write_text(yaml.safe_dump(config))
    return path


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    fake: FakeServer
    tokens: set[str] | None

    def do_GET(self) -> None:
        asked = self._asked()
        if asked.query.get("watch") == "true":
            self._watch(asked)
        elif asked.place.subresource == "log":
            lines = self.fake.logs.get((asked.place.namespace, asked.place.name), [])
            self._send(200, b"".join(f"{at} {text}\n".encode() for at, text in lines))
        else:
            self._answer(asked)

    def do_POST(self) -> None:
        self._answer(self._asked())

    do_PUT = do_PATCH = do_DELETE = do_POST  # noqa: N815  names of the library

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  name of the library
        """Tests read answers, no log."""

    def _asked(self) -> Asked:
        split = urlsplit(self.path)
        size = int(self.headers.get("Content-Length", "0"))
        return Asked(
            method=self.command,
            path=split.path,
            query=dict(parse_qsl(split.query)),
            body=json.loads(self.rfile.read(size)) if size else None,
            content_type=self.headers.get("Content-Type", "application/json"),
        )

    def _answer(self, asked: Asked) -> None:
        status, body = self.fake.answer(asked) if self._is_known() else (401, _UNKNOWN)
        self._send(status, json.dumps(body).encode())

    def _is_known(self) -> bool:
        return self.tokens is None or self.headers.get("Authorization", "").removeprefix("Bearer ") in self.tokens

    def _send(self, status: int, data: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _watch(self, asked: Asked) -> None:
        try:
            news = self.fake.watch(asked)
        except Refusal as refusal:
            self._send(refusal.code, json.dumps(refusal.body).encode())
            return
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        ends = time.monotonic() + float(asked.query.get("timeoutSeconds", "300"))
        bookmark = time.monotonic() + BOOKMARK_SECONDS
        while time.monotonic() < ends:
            for line in news():
                self._chunk(line)
            if time.monotonic() > bookmark:
                bookmark += BOOKMARK_SECONDS
                self._chunk(self.fake.bookmark(asked))
            with self.fake.store.changed:
                self.fake.store.changed.wait(_PAUSE_SECONDS)
        self._chunk(b"")

    def _chunk(self, data: bytes) -> None:
        try:
            self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
            self.wfile.flush()
        except ConnectionError:
            self.close_connection = True
