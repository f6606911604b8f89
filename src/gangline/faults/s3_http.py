"""HTTP server of the S3 gateway: authenticates requests by their access key and passes them to a handler."""

from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Protocol
from urllib.parse import parse_qsl, unquote, urlsplit

from gangline.faults import s3_documents as documents

BUCKET = "store"


@dataclass(frozen=True, slots=True)
class S3Response:
    status: int
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)


def refusal(status: int, code: str, message: str = "") -> S3Response:
    return S3Response(status, documents.error(code, message), {"Content-Type": "application/xml"})


@dataclass(frozen=True, slots=True)
class S3Request:
    method: str
    key: str
    """Empty: the bucket."""
    query: dict[str, str]
    headers: dict[str, str]
    """By lower-case name."""
    body: bytes = b""

    def wanted_range(self) -> tuple[int, int | None]:
        """Start and size of `bytes=5-9`; all of it without one."""
        first, _, last = self.headers.get("range", "").removeprefix("bytes=").partition("-")
        start = int(first or 0)
        return start, int(last) - start + 1 if last else None


class S3RequestHandler(Protocol):
    """Who answers."""

    def knows(self, authorization: str) -> bool:
        """Was this header, or query of a presigned URL, made with the access key?"""
        ...

    def answer(self, request: S3Request) -> S3Response: ...


def listen(behind: S3RequestHandler) -> ThreadingHTTPServer:
    """A server on a free loopback port; it serves once `serve_forever` is called."""
    return _Server(("127.0.0.1", 0), _handler(behind))


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: object, client_address: object) -> None:
        """A connection that broke off is no event here: a fault before this server did it."""


def _handler(behind: S3RequestHandler) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = 120.0
        disable_nagle_algorithm = True
        wbufsize = 65536

        def _serve(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            parts = urlsplit(self.path)
            bucket, _, key = unquote(parts.path).removeprefix("/").partition("/")
            query = dict(parse_qsl(parts.query, keep_blank_values=True))
            said = self.headers.get("Authorization") or f"Credential={query.get('X-Amz-Credential', '')}"
            if not behind.knows(said):
                self._send(refusal(403, "InvalidAccessKeyId"))
            elif bucket != BUCKET:
                self._send(refusal(404, "NoSuchBucket"))
            else:
                headers = {name.lower(): value for name, value in self.headers.items()}
                self._send(behind.answer(S3Request(self.command, key, query, headers, body)))

        do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _serve  # noqa: N815  # names of the standard library

        def _send(self, answer: S3Response) -> None:
            self.send_response(answer.status)
            for name, value in ({"Content-Length": str(len(answer.body))} | answer.headers).items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(answer.body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the standard library's name
            """Says nothing: what matters is counted."""

    return Handler
