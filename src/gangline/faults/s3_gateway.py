"""S3 server on loopback in front of any object store, so that faults can be injected between ranks and the store.

It serves what `storage.s3` requests, no more, and holds no data: every write goes to the store behind it. The access
key of a request is checked before its handler is called. Put a `FaultProxy` before it to delay, refuse or cut; `fill`
makes it full.
"""

import errno
import hmac
import secrets
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Protocol, Self
from urllib.parse import parse_qsl, unquote, urlsplit
from xml.sax.saxutils import escape

from gangline.errors import StorageError, UsageError
from gangline.storage.objects.protocol import Entry, Etag, ObjectStore, OpenUpload, Upload
from gangline.storage.s3.names import UPLOAD_NOTES_PREFIX, WRITE_ID_HEADER

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
            header = self.headers.get("Authorization") or f"Credential={query.get('X-Amz-Credential', '')}"
            if not behind.is_authenticated(header):
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
        _element(
            "Contents", {"Key": entry.key, "Size": str(entry.size_bytes), "LastModified": _iso_time(entry.modified)}
        )
        for entry in entries
    )
    return _document("ListBucketResult", _fields({"Name": bucket, "IsTruncated": "false"}) + found)


def uploads_document(bucket: str, entries: Iterable[OpenUpload]) -> bytes:
    """Response to a listing of open multipart uploads; it is never truncated."""
    found = "".join(
        _element("Upload", {"Key": entry.key, "UploadId": entry.upload_id, "Initiated": _iso_time(entry.started)})
        for entry in entries
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


_POLL_SECONDS = 0.02


@dataclass(slots=True)
class _Open:
    """A multipart upload that was begun here."""

    block: AbstractContextManager[Upload]
    upload: Upload
    key: str
    write_id: str
    parts: int = 0


class S3Gateway:
    """Serves `store` on a free loopback port to clients with `credentials`; a context manager."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._access_key = secrets.token_hex(20)
        self._secret_key = secrets.token_hex(20)
        self._write_ids: dict[str, tuple[Etag, str]] = {}
        self._notes: dict[str, float] = {}
        """Notes of the S3 client about uploads; they are not keys of the store, so they are kept here."""
        self._uploads: dict[str, _Open] = {}
        self._full_below: str | None = None
        self._lock = threading.Lock()
        self._server = listen(self)
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(_POLL_SECONDS,), name="gateway", daemon=True
        )

    @property
    def port(self) -> int:
        """Port on loopback at which it listens."""
        return int(self._server.server_address[1])

    @property
    def credentials(self) -> str:
        """`ACCESS:SECRET`. Only the access key is checked; it is random and as long as the secret."""
        return f"{self._access_key}:{self._secret_key}"

    @staticmethod
    def url(port: int) -> str:
        """URL of the store for clients, by `port`: that of the gateway or of a proxy in front of it."""
        return f"s3://{BUCKET}?endpoint=http://127.0.0.1:{port}&region=us-east-1"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def fill(self, below: str | None) -> None:
        """Refuse all further writes below this prefix; None: accept them again."""
        self._full_below = below

    def is_authenticated(self, authorization: str) -> bool:
        """Whether this header, or query of a presigned URL, was made with the access key."""
        _, _, rest = authorization.partition("Credential=")
        return hmac.compare_digest(rest.partition("/")[0].encode(), self._access_key.encode())

    def answer(self, request: S3Request) -> S3Response:
        """The response of the store to `request`."""
        try:
            return self._answer(request)
        except UsageError as error:
            return refusal(400, "InvalidArgument", str(error))
        except StorageError as error:
            return _error_response(error)

    def _answer(self, request: S3Request) -> S3Response:
        if not request.key:
            return self._list(request)
        if request.key.startswith(UPLOAD_NOTES_PREFIX):
            return self._note(request)
        if self._writes(request) and self._full_below is not None and request.key.startswith(self._full_below):
            return refusal(507, "XMinioStorageFull", "a drill keeps this store full")
        if {"uploads", "uploadId"} & request.query.keys():
            return self._multipart(request)
        verbs: dict[str, Callable[[S3Request], S3Response]] = {
            "GET": self._get, "HEAD": self._head, "PUT": self._put, "DELETE": self._delete,
        }  # fmt: skip
        verb = verbs.get(request.method)
        return verb(request) if verb else refusal(405, "MethodNotAllowed")

    @staticmethod
    def _writes(request: S3Request) -> bool:
        """Whether the request writes data or begins an upload."""
        return request.method == "PUT" or (request.method == "POST" and "uploads" in request.query)

    # -- objects

    def _get(self, request: S3Request) -> S3Response:
        start, size = request.wanted_range()
        blob = self._store.get(request.key, start, size)
        if blob is None:
            return _missing()
        headers = {"ETag": f'"{blob.etag}"'}
        if "range" not in request.headers:
            return S3Response(200, blob.data, headers)
        if start >= blob.size_bytes:
            return refusal(416, "InvalidRange")
        headers["Content-Range"] = f"bytes {start}-{start + len(blob.data) - 1}/{blob.size_bytes}"
        return S3Response(206, blob.data, headers)

    def _head(self, request: S3Request) -> S3Response:
        entry, blob = self._store.head(request.key), self._store.get(request.key, 0, 0)
        if entry is None or blob is None:
            return S3Response(404)
        headers = {
            "ETag": f'"{blob.etag}"',
            "Content-Length": str(entry.size_bytes),
            "Last-Modified": http_time(entry.modified),
        }
        etag, write_id = self._write_ids.get(request.key, ("", ""))
        return S3Response(200, b"", headers | ({WRITE_ID_HEADER: write_id} if etag == blob.etag else {}))

    def _put(self, request: S3Request) -> S3Response:
        key, data = request.key, request.body
        expected = request.headers.get("if-match")
        if expected is not None:
            etag = self._store.compare_and_set(key, data, expected.strip('"'))
        elif "if-none-match" in request.headers:
            etag = self._store.put_if_absent(key, data)
        else:
            etag = self._store.put(key, data)
        if etag is None:
            return refusal(412, "PreconditionFailed")
        self._write_ids[key] = etag, request.headers.get(WRITE_ID_HEADER, "")
        return S3Response(200, b"", {"ETag": f'"{etag}"'})

    def _delete(self, request: S3Request) -> S3Response:
        self._store.delete(request.key)
        return S3Response(204)

    # -- uploads

    def _multipart(self, request: S3Request) -> S3Response:
        if request.method == "POST" and "uploads" in request.query:
            return self._begin(request)
        upload_id = request.query.get("uploadId", "")
        with self._lock:
            upload = self._uploads.get(upload_id)
        if request.method == "DELETE":
            return self._abort(request.key, upload_id, upload)
        if upload is None:
            return refusal(404, "NoSuchUpload")
        return self._part(upload, request) if request.method == "PUT" else self._complete(upload, upload_id)

    def _begin(self, request: S3Request) -> S3Response:
        block = self._store.upload(request.key)
        upload = block.__enter__()
        with self._lock:
            self._uploads[upload.upload_id] = _Open(
                block, upload, request.key, request.headers.get(WRITE_ID_HEADER, "")
            )
        return S3Response(200, upload_document(upload.upload_id))

    def _part(self, found: _Open, request: S3Request) -> S3Response:
        number = int(request.query["partNumber"])
        if number > found.parts:  # one that is there already is sent again for want of our answer
            found.upload.part(request.body)
            found.parts = number
        return S3Response(200, b"", {"ETag": f'"{number}"'})

    def _complete(self, found: _Open, upload_id: str) -> S3Response:
        etag = found.upload.complete()
        found.block.__exit__(None, None, None)
        self._write_ids[found.key] = etag, found.write_id
        with self._lock:
            self._uploads.pop(upload_id, None)
        return S3Response(200, completed_document(etag))

    def _abort(self, key: str, upload_id: str, found: _Open | None) -> S3Response:
        with self._lock:
            self._uploads.pop(upload_id, None)
        if found is None:
            self._store.abort_upload(OpenUpload(key, upload_id, 0.0))
        else:
            with suppress(_Aborted):
                found.block.__exit__(_Aborted, _Aborted(), None)
        return S3Response(204)

    # -- listings

    def _list(self, request: S3Request) -> S3Response:
        prefix = request.query.get("prefix", "")
        if "uploads" in request.query:
            return S3Response(200, uploads_document(BUCKET, self._store.open_uploads(prefix)))
        after, limit = request.query.get("start-after", ""), int(request.query.get("max-keys", "1000"))
        if prefix.startswith(UPLOAD_NOTES_PREFIX):
            notes = sorted(self._notes.items())
            entries = [Entry(key, 0, at) for key, at in notes if key.startswith(prefix) and key > after]
            return S3Response(200, listing_document(BUCKET, entries[:limit]))
        return S3Response(200, listing_document(BUCKET, self._store.list(prefix, after, limit)))

    def _note(self, request: S3Request) -> S3Response:
        if request.method == "PUT":
            self._notes[request.key] = time.time()
            return S3Response(200, b"", {"ETag": '"note"'})
        if request.method == "DELETE":
            self._notes.pop(request.key, None)
            return S3Response(204)
        return _missing()


class _Aborted(Exception):
    """The client gave its upload up."""


def _missing() -> S3Response:
    return refusal(404, "NoSuchKey")


def _error_response(error: StorageError) -> S3Response:
    """Response for an error of the store: a full disk is a full store, any other error may be retried."""
    cause = error.__cause__
    if isinstance(cause, OSError) and cause.errno in (errno.ENOSPC, errno.EDQUOT):
        return refusal(507, "XMinioStorageFull", str(error))
    return refusal(500, "InternalError", str(error))
