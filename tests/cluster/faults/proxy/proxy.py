"""`ApiFaultProxy`: stands before a real or fake API server and does to single requests what networks and servers do.

It ends TLS with a certificate authority of its own and goes on with the credentials of a kubeconfig, so a client needs
nothing but the kubeconfig that it writes. Faults of bytes and connections are `gangline.faults.proxy.FaultProxy`'s,
which may stand before this one.
"""

import json
import os
import socket
import ssl
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import urllib3
import yaml
from tests.cluster.faults.proxy.certificates import write_certificates
from tests.cluster.faults.proxy.rules import HttpRule, RuleBook
from urllib3.exceptions import HTTPError

from gangline.launch.kubernetes.client.auth import ApiSession, sign_in
from gangline.launch.kubernetes.client.streaming import bounded_lines

_REASONS = {409: "Conflict", 429: "TooManyRequests", 500: "InternalError", 503: "ServiceUnavailable", 504: "Timeout"}
_PASSED_ON = ("Content-Type", "Accept", "Impersonate-User", "Impersonate-Group")


class ApiFaultProxy:
    """A context manager; `kubeconfig` is a file for its clients.

    Args:
        kubeconfig: Of the server behind it.
        folder: For certificates and the new kubeconfig.
    """

    def __init__(self, kubeconfig: Path, folder: Path, *, rules: Iterable[HttpRule] = (), seed: int = 0) -> None:
        self.book = RuleBook(list(rules), seed=seed)
        self.kubeconfig = folder / "proxy.kubeconfig"
        self._session = sign_in({**os.environ, "KUBECONFIG": str(kubeconfig)})
        ca, server = write_certificates(folder)
        self._connections: set[socket.socket] = set()
        context = {"book": self.book, "session": self._session, "connections": self._connections}
        handler = type("Handler", (_Handler,), context)
        self._front = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._front.daemon_threads = True
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(server)
        self._front.socket = tls.wrap_socket(self._front.socket, server_side=True, do_handshake_on_connect=False)
        self._write_kubeconfig(ca)
        self._thread = threading.Thread(target=self._front.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._front.shutdown()
        self._front.server_close()
        self._thread.join()

    def cut_connections(self) -> None:
        """Break every open connection, those of watches and logs too; new ones are accepted."""
        for each in list(self._connections):
            with suppress(OSError):  # it was closed meanwhile
                each.shutdown(socket.SHUT_RDWR)

    def _write_kubeconfig(self, ca: Path) -> None:
        cluster = {"server": f"https://127.0.0.1:{self._front.server_port}", "certificate-authority": str(ca)}
        context = {"cluster": "proxy", "user": "proxy", "namespace": self._session.namespace}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "proxy", "cluster": cluster}],
            "users": [{"name": "proxy", "user": {"token": "the-proxy-has-its-own"}}],
            "contexts": [{"name": "proxy", "context": context}],
            "current-context": "proxy",
        }
        self.kubeconfig.write_text(yaml.safe_dump(config))


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    book: RuleBook
    session: ApiSession
    connections: set[socket.socket]

    def setup(self) -> None:
        super().setup()
        self.connections.add(self.connection)

    def finish(self) -> None:
        self.connections.discard(self.connection)
        super().finish()

    def do_GET(self) -> None:
        size = int(self.headers.get("Content-Length", "0"))
        body = self.rfile.read(size) if size else None
        rule = self.book.strike(self.command, self.path)
        match rule.action if rule else "":
            case "hold":
                assert rule is not None
                time.sleep(rule.seconds)
                self._forward(body, None)
            case "answer":
                assert rule is not None
                self._answer(rule)
            case "drip":
                assert rule is not None
                self._drip(rule)
            case "lose_answer":
                self._ask(self.path, body).drain_conn()
                self.close_connection = True
            case "old_version":
                self.path = self.path.replace("resourceVersion=", "resourceVersion=1&was=")
                self._forward(body, None)
            case _:
                self._forward(body, rule)

    do_POST = do_PUT = do_PATCH = do_DELETE = do_GET  # noqa: N815  names of the library

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  name of the library
        """What was struck is in the book."""

    def _ask(self, path: str, body: bytes | None) -> urllib3.BaseHTTPResponse:
        headers = {name: self.headers[name] for name in _PASSED_ON if name in self.headers}
        return self.session.http.pool.request(
            self.command,
            self.session.server + path,
            body=body,
            headers={**headers, **self.session.headers()},
            preload_content=False,
            retries=False,
        )

    def _forward(self, body: bytes | None, rule: HttpRule | None) -> None:
        try:
            answer = self._ask(self.path, body)
        except HTTPError:
            self.close_connection = True  # the server went away; so do we
            return
        try:
            if "watch=true" in self.path and answer.status == 200:
                self._stream(_faulty(_lines(answer), rule))
            else:
                self._send(answer.status, answer.read(), answer.headers.get("Retry-After"))
        except (OSError, HTTPError):
            self.close_connection = True  # one of the two went away, which is its right
        finally:
            answer.close()

    def _answer(self, rule: HttpRule) -> None:
        reason = _REASONS.get(rule.status, "InternalError")
        body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "code": rule.status}
        data = json.dumps({**body, "message": "struck by the fault proxy"}).encode()
        self._send(rule.status, data, None if rule.retry_after_seconds is None else str(rule.retry_after_seconds))

    def _drip(self, rule: HttpRule) -> None:
        """Bytes of one JSON string, ten a second."""
        self.close_connection = True
        self.send_response(rule.status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(2**20))
        self.end_headers()
        end = time.monotonic() + rule.seconds
        try:
            while time.monotonic() < end:
                self.wfile.write(b'"')
                self.wfile.flush()
                time.sleep(0.1)
        except OSError:
            pass  # the client gave up, as it should

    def _send(self, status: int, data: bytes, retry_after: str | None) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        if retry_after is not None:
            self.send_header("Retry-After", retry_after)
        self.end_headers()
        self.wfile.write(data)

    def _stream(self, lines: Iterator[bytes]) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        try:
            for line in lines:
                self.wfile.write(f"{len(line) + 1:x}\r\n".encode() + line + b"\n\r\n")
                self.wfile.flush()
            self.wfile.write(b"0\r\n\r\n")
        except _Cut:
            self.close_connection = True


class _Cut(Exception):
    """Here the connection breaks."""


def _lines(answer: urllib3.BaseHTTPResponse) -> Iterator[bytes]:
    for line in bounded_lines(answer.stream(65536), max_bytes=2**26):
        assert isinstance(line, bytes)
        yield line


def _faulty(lines: Iterator[bytes], rule: HttpRule | None) -> Iterator[bytes]:
    held: bytes | None = None
    for number, line in enumerate(lines):
        action = rule.action if rule and number >= rule.after else ""
        if rule and action == "cut_watch":
            raise _Cut
        if rule and action == "stall_watch":
            time.sleep(rule.seconds)
            raise _Cut
        if action == "thin_watch" and number % 2:
            continue
        if action == "bookmarks_only" and b'"BOOKMARK"' not in line[:40]:
            continue
        if action == "reorder_watch" and held is None:
            held = line
            continue
        yield line
        if held is not None:
            yield held
            held = None
    if held is not None:
        yield held
