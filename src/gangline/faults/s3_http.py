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
    """Status, body and headers of a response."""

    status: int
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)


def refusal(status: int, code: str, message: str = "") -> S3Response:
    """Response with an XML error document."""
    return S3Response(status, _error_document(code, message), {"Content-Type": "application/xml"})


@dataclass(frozen=True, slots=True)
class S3Request:
    """One request of the bucket, after the access key was checked."""

    method: str
    key: str
    """Empty: the bucket."""
    query: dict[str, str]
    headers: dict[str, str]
    """Headers by lower-case name."""
    body: bytes = b""

    def wanted_range(self) -> tuple[int, int | None]:
        """Start and size of the header `Range`; (0, None) without one."""
        first, _, last = self.headers.get("range", "").removeprefix("bytes=").partition("-")
        start = int(first or 0)
        return start, int(last) - start + 1 if last else None


class _S3RequestHandler(Protocol):
    """Answers the requests of a server."""

    def is_authenticated(self, authorization: str) -> bool:
        """Whether this header, or query of a presigned URL, was made with the access key."""
        ...

    def answer(self, request: S3Request) -> S3Response:
        """The response to a request with a valid access key."""
        ...


def listen(behind: _S3RequestHandler) -> ThreadingHTTPServer:
    """A server on a free loopback port; it serves requests once `serve_forever` is called."""
    return _Server(("127.0.0.1", 0), _handler(behind))


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignored: a broken connection is an injected fault."""


def _handler(behind: _S3RequestHandler) -> type[BaseHTTPRequestHandler]:
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
            if not behind.is_authenticated(said):
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
            """No request log."""

    return Handler


_Fields = dict[str, str]


def _error_document(code: str, message: str) -> bytes:
    return _document("Error", _fields({"Code": code, "Message": message}))


def upload_document(upload_id: str) -> bytes:
    """Response to the begin of a multipart upload."""
    return _document("InitiateMultipartUploadResult", _fields({"UploadId": upload_id}))


def completed_document(etag: str) -> bytes:
    """Response to the end of a multipart upload."""
    return _document("CompleteMultipartUploadResult", _fields({"ETag": f'"{etag}"'}))


def listing_document(bucket: str, entries: Iterable[Entry]) -> bytes:
    """Response to a listing of objects; it is never truncated."""
    found = "".join(
        _element("Contents", {"Key": each.key, "Size": str(each.size_bytes), "LastModified": _iso_time(each.modified)})
        for each in entries
    )
    return _document("ListBucketResult", _fields({"Name": bucket, "IsTruncated": "false"}) + found)


def uploads_document(bucket: str, entries: Iterable[OpenUpload]) -> bytes:
    """Response to a listing of open multipart uploads; it is never truncated."""
    found = "".join(
        _element("Upload", {"Key": each.key, "UploadId": each.upload_id, "Initiated": _iso_time(each.started)})
        for each in entries
    )
    return _document("ListMultipartUploadsResult", _fields({"Bucket": bucket, "IsTruncated": "false"}) + found)


def _iso_time(seconds: float) -> str:
    """`2026-11-22T10:00:00.000Z` of seconds since the epoch."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def http_time(seconds: float) -> str:
    """Seconds since the epoch as an HTTP date."""
    return format_datetime(datetime.fromtimestamp(int(seconds), UTC), usegmt=True)


def _element(name: str, fields: _Fields) -> str:
    return f"<{name}>{_fields(fields)}</{name}>"


def _fields(fields: _Fields) -> str:
    return "".join(f"<{name}>{escape(text)}</{name}>" for name, text in fields.items())


def _document(name: str, inside: str) -> bytes:
    return f'<?xml version="1.0" encoding="UTF-8"?>\n<{name}>{inside}</{name}>'.encode()
