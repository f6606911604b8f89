"""HTTP server and XML documents of the S3 gateway: checks the access key of a request, then calls a handler."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Protocol
from urllib.parse import parse_qsl, unquote, urlsplit
from xml.sax.saxutils import escape

from gangline.storage.objects.protocol import Entry, OpenUpload

BUCKET = "store"


@dataclass(frozen=True, slots=True)
class S3Response:
    status: int
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)


def refusal(status: int, code: str, message: str = "") -> S3Response:
    return S3Response(status, error_document(code, message), {"Content-Type": "application/xml"})


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


Fields = dict[str, str]


def error_document(code: str, message: str) -> bytes:
    return _document("Error", _fields({"Code": code, "Message": message}))


def upload_document(upload_id: str) -> bytes:
    return _document("InitiateMultipartUploadResult", _fields({"UploadId": upload_id}))


def completed_document(etag: str) -> bytes:
    return _document("CompleteMultipartUploadResult", _fields({"ETag": f'"{etag}"'}))


def listing_document(bucket: str, entries: Iterable[Entry]) -> bytes:
    found = "".join(
        _element("Contents", {"Key": each.key, "Size": str(each.size_bytes), "LastModified": iso_time(each.modified)})
        for each in entries
    )
    return _document("ListBucketResult", _fields({"Name": bucket, "IsTruncated": "false"}) + found)


def uploads_document(bucket: str, entries: Iterable[OpenUpload]) -> bytes:
    found = "".join(
        _element("Upload", {"Key": each.key, "UploadId": each.upload_id, "Initiated": iso_time(each.started)})
        for each in entries
    )
    return _document("ListMultipartUploadsResult", _fields({"Bucket": bucket, "IsTruncated": "false"}) + found)


def iso_time(seconds: float) -> str:
    """`2026-11-22T10:00:00.000Z` of seconds since the epoch."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def http_time(seconds: float) -> str:
    return format_datetime(datetime.fromtimestamp(int(seconds), UTC), usegmt=True)


def _element(name: str, fields: Fields) -> str:
    return f"<{name}>{_fields(fields)}</{name}>"


def _fields(fields: Fields) -> str:
    return "".join(f"<{name}>{escape(text)}</{name}>" for name, text in fields.items())


def _document(name: str, inside: str) -> bytes:
    return f'<?xml version="1.0" encoding="UTF-8"?>\n<{name}>{inside}</{name}>'.encode()
