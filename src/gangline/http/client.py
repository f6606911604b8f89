"""The HTTP client for every server that gangline talks to: object stores, API servers, registries, forges, pipelines.

One request is one try: no redirect is followed and nothing is retried here (`retry` does that). An answer of any status
is returned; a request without one raises an error of `retry` that says what became of it.
"""

import json
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import urllib3
from urllib3.exceptions import ConnectTimeoutError, HTTPError, NewConnectionError, ReadTimeoutError, SSLError
from urllib3.filepost import encode_multipart_formdata

from gangline.http.connections import Dial, direct, ends_by, use_connections
from gangline.http.retry import Deadline, NotCarriedOut, OutcomeUnknown, ReadTimeout, RequestFailed, TlsFailed

PIECE_BYTES = 1 << 16
_LEAST_SECONDS = 0.05
"""A try that begins at the end of its deadline still gets so long to connect."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TimeLimits:
    """Limits of one try in addition to its deadline."""

    connect_seconds: float = 5.0
    silence_seconds: float = 30.0
    """Longest pause before a byte comes; a transfer that progresses may take longer."""


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """An answer, whole."""

    status: int
    headers: Mapping[str, str]
    """Names in any case."""
    data: bytes

    def json(self) -> Any:
        """The body as JSON. Raises ValueError."""
        try:
            return json.loads(self.data)
        except RecursionError as error:
            raise ValueError("nested too deeply") from error


class BodyTooLarge(RequestFailed):
    """The body is longer than the caller reads."""


class HttpStream:
    """An answer whose body is read as it comes; a context manager that closes it."""

    def __init__(self, response: urllib3.BaseHTTPResponse) -> None:
        self._response = response
        self.status = response.status
        self.headers: Mapping[str, str] = response.headers

    def pieces(self, size: int = PIECE_BYTES) -> Iterator[bytes]:
        """The body, at most `size` bytes at a time, each as soon as it has come.

        Raises:
            OutcomeUnknown: No more of it came.
        """
        with library_failures():
            while piece := self._response.read1(size):
                yield piece

    def read(self, *, max_bytes: int | None = None, deadline: Deadline | None = None) -> HttpResponse:
        """The whole answer; closes it.

        Raises:
            BodyTooLarge: It is longer than `max_bytes`.
            OutcomeUnknown: No more of it came, or not all of it within the deadline.
        """
        with self, ends_by(deadline):
            if max_bytes is None:
                with library_failures():
                    return HttpResponse(self.status, self.headers, self._response.read())
            data = bytearray()
            for piece in self.pieces():
                data += piece
                if len(data) > max_bytes:
                    raise BodyTooLarge(f"an answer of more than {max_bytes} bytes")
            return HttpResponse(self.status, self.headers, bytes(data))

    def close(self) -> None:
        """Return the connection to its pool; one with unread bytes is closed instead."""
        self._response.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


class HttpClient:
    """Pooled connections to servers.

    Args:
        dial: How connections are opened; `connections.checked` for servers that others may name.
        connections: Kept open to each server, for as many threads at once.
        limits: Of each try.
        pool: Made by a library that knows credentials and TLS of its server; None: a new one.

    Attributes:
        pool: For a library that sends requests of its own, within `library_failures`.
    """

    def __init__(
        self,
        dial: Dial = direct,
        *,
        connections: int = 4,
        limits: TimeLimits = TimeLimits(),
        pool: urllib3.PoolManager | None = None,
    ) -> None:
        self._limits = limits
        usual = urllib3.Timeout(connect=limits.connect_seconds, read=limits.silence_seconds)
        self.pool = pool or urllib3.PoolManager(maxsize=connections, retries=False, timeout=usual)
        use_connections(self.pool, dial)

    def request(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        body: Any = None,
        limits: TimeLimits | None = None,
        deadline: Deadline | None = None,
        max_bytes: int | None = None,
    ) -> HttpResponse:
        """The whole answer, of any status.

        Args:
            method: HTTP method.
            url: Absolute URL.
            headers: Of the request.
            body: Bytes, or a file that is sent from where it is.
            limits: Of this try; None: the client's.
            deadline: By which the last byte must have come.
            max_bytes: Of the body.

        Raises:
            NotCarriedOut: No connection came about.
            OutcomeUnknown: The request was sent, and no whole answer came.
            TlsFailed: The server's certificate was refused, or it speaks no TLS.
            BodyTooLarge: The body is longer than `max_bytes`.
        """
        opened = self.open(method, url, headers=headers, body=body, limits=limits, deadline=deadline)
        return opened.read(max_bytes=max_bytes, deadline=deadline)

    def open(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        body: Any = None,
        limits: TimeLimits | None = None,
        deadline: Deadline | None = None,
        decoded: bool = True,
    ) -> HttpStream:
        """The answer with its body unread; the deadline ends with its head. Arguments and errors as of `request`.

        Args:
            decoded: A compressed body is read decompressed.
        """
        limits = limits or self._limits
        left_seconds = max(deadline.left_seconds(), _LEAST_SECONDS) if deadline else limits.connect_seconds
        with library_failures(), ends_by(deadline):
            response = self.pool.request(
                method,
                url,
                headers=headers,
                body=body,
                redirect=False,
                retries=False,
                preload_content=False,
                decode_content=decoded,
                timeout=urllib3.Timeout(connect=min(limits.connect_seconds, left_seconds), read=limits.silence_seconds),
            )
        return HttpStream(response)

    def close(self) -> None:
        """Close the connections that are not in use."""
        self.pool.clear()


def multipart_form(field: str, filename: str, content: bytes, content_type: str) -> tuple[bytes, str]:
    """Body and `Content-Type` of a form with one file."""
    return encode_multipart_formdata({field: (filename, content, content_type)})


@contextmanager
def library_failures() -> Iterator[None]:
    """Errors of urllib3 in the block are raised as those of `retry`."""
    try:
        yield
    except SSLError as error:
        if error.args and isinstance(error.args[0], ssl.SSLEOFError | ssl.SSLZeroReturnError):
            # a balancer before a server that is away takes connections and closes them: that says nothing of TLS
            raise OutcomeUnknown(_reason(error)) from error
        raise TlsFailed(_reason(error)) from error
    except (NewConnectionError, ConnectTimeoutError) as error:
        raise NotCarriedOut(_reason(error)) from error
    except ReadTimeoutError as error:
        raise ReadTimeout(_reason(error)) from error
    except HTTPError as error:
        raise OutcomeUnknown(_reason(error)) from error


def _reason(error: Exception) -> str:
    text = getattr(error, "_message", None) or str(error)
    return str(text).splitlines()[0][:300] if text else type(error).__name__
