"""HTTP requests to one API server: retries where they are safe, under one deadline for all tries.

The module knows statuses and time; what a request is for is known to `client`. What happens to a request whose answer
is lost depends on `ApiRequest.repeatable`; one that the server cannot have acted on (429, 503, no connection) is
always retried.
"""

import json
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar
from urllib.parse import urlencode

import stamina
import urllib3
from urllib3.exceptions import ConnectTimeoutError, HTTPError, NewConnectionError, ReadTimeoutError, SSLError

from gangline.errors import ConfigError
from gangline.launch.kubernetes.client.api import ApiUnavailable, Object, parse_path
from gangline.launch.kubernetes.client.api_errors import is_retryable, may_have_happened, server_message
from gangline.launch.kubernetes.client.auth import ApiSession

_CONNECT_SECONDS = 5.0
_READ_SECONDS = 30.0
"""Of silence in a call; a stream has a limit of its own."""
_MAX_ANSWER_BYTES = 64 * 2**20
_CHUNK_BYTES = 65536
_LEAST_SECONDS = 0.5
"""Of the last try, which may begin shortly before the deadline."""
HttpResponse = urllib3.BaseHTTPResponse
Result = TypeVar("Result")


@dataclass(frozen=True, kw_only=True, slots=True)
class ApiRequest:
    """One request to the API server; `path` is that of the server, `query` is not encoded yet."""

    verb: str
    """As rights name it: get, list, watch, create, patch, update, delete."""
    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    body: Any = None
    content_type: str = "application/json"
    accept: str = "application/json"
    repeatable: bool = False
    """May be sent again even if an earlier try may have taken effect."""

    def __str__(self) -> str:
        return f"{self.verb} {parse_path(self.path)}"


@dataclass(frozen=True, kw_only=True, slots=True)
class ApiResponse:
    """Status and JSON body of a response."""

    status: int
    body: Object


@dataclass(frozen=True, kw_only=True, slots=True)
class ResponseStream:
    """A response that is read while it arrives."""

    refusal: ApiResponse | None
    """Response with an error status, instead of a stream; None: the stream is open."""
    chunks: Iterator[bytes]
    """Raises `ApiUnavailable` when the server falls silent or the connection breaks."""


class Transport(Protocol):
    """Carries requests to a server; `client` works over any."""

    def send(self, request: ApiRequest) -> ApiResponse:
        """The server's answer, whatever its status. Raises `ApiUnavailable`."""
        ...

    def stream(
        self, request: ApiRequest, *, seconds: float, silence_seconds: float
    ) -> AbstractContextManager[ResponseStream]:
        """An answer that is read as it comes, for `seconds` at most, after which it ends. Raises `ApiUnavailable`."""
        ...


class RetryableFailure(Exception):
    """No answer, or one that means: again."""

    def __init__(self, reason: str, *, repeat: bool, retry_after_seconds: float | None = None) -> None:
        super().__init__(reason)
        self.repeat = repeat
        self.retry_after_seconds = retry_after_seconds


class HttpTransport:
    """Transport over urllib3.

    Args:
        sign_in: Called at the start, and again when an answer says 401: credentials end.
        deadline_seconds: Total time of one call, all its tries and waits together.
    """

    def __init__(self, sign_in: Callable[[], ApiSession], *, deadline_seconds: float) -> None:
        self._sign_in = sign_in
        self._deadline_seconds = deadline_seconds
        self.session = sign_in()

    def send(self, request: ApiRequest) -> ApiResponse:
        def attempt(until: float) -> ApiResponse:
            response = self._open(request, until=until, silence_seconds=_READ_SECONDS)
            return _checked_response(request, response, _read(request, response, until=until))

        return self._retrying(request, attempt)

    @contextmanager
    def stream(self, request: ApiRequest, *, seconds: float, silence_seconds: float) -> Iterator[ResponseStream]:
        ends = time.monotonic() + seconds

        def attempt(until: float) -> tuple[HttpResponse, ApiResponse | None]:
            response = self._open(request, until=until, silence_seconds=silence_seconds)
            if response.status < 300:  # 204: there is nothing yet
                return response, None
            return response, _checked_response(request, response, _read(request, response, until=until))

        response, refusal = self._retrying(request, attempt)
        try:
            yield ResponseStream(refusal=refusal, chunks=iter(()) if refusal else _chunks(request, response, ends=ends))
        finally:
            response.close()

    def _retrying(self, request: ApiRequest, attempt: Callable[[float], Result]) -> Result:
        """Call `attempt` with the end of its time until it is answered; backoff, jitter and Retry-After in between."""
        began = time.monotonic()
        until = began + self._deadline_seconds
        retry = stamina.RetryingCaller(
            attempts=None,
            timeout=self._deadline_seconds,
            wait_initial=0.1,
            wait_max=min(5.0, self._deadline_seconds / 8),
            wait_jitter=0.3,
        )
        try:
            return retry(
                lambda error: _wait(error, until), lambda: attempt(max(until, time.monotonic() + _LEAST_SECONDS))
            )
        except RetryableFailure as last:
            raise ApiUnavailable(
                f"{request}: the API server {self.session.server} gave no answer in {time.monotonic() - began:.1f} s "
                f"({last}); {_after(request)}"
            ) from last

    def _open(self, request: ApiRequest, *, until: float, silence_seconds: float) -> HttpResponse:
        response = self._request(request, until=until, silence_seconds=silence_seconds)
        if response.status != 401:
            return response
        response.close()
        self.session = self._sign_in()
        return self._request(request, until=until, silence_seconds=silence_seconds)

    def _request(self, request: ApiRequest, *, until: float, silence_seconds: float) -> HttpResponse:
        session = self.session
        left_seconds = max(until - time.monotonic(), 0.05)
        query = f"?{urlencode(request.query)}" if request.query else ""
        try:
            return session.pool.request(
                request.method,
                f"{session.server}{request.path}{query}",
                body=None if request.body is None else json.dumps(request.body).encode(),
                headers={"Accept": request.accept, "Content-Type": request.content_type, **session.headers()},
                preload_content=False,
                redirect=False,
                retries=False,
                timeout=urllib3.Timeout(
                    connect=min(_CONNECT_SECONDS, left_seconds), read=min(silence_seconds, left_seconds)
                ),
            )
        except SSLError as error:
            if _is_disconnect(error):
                raise RetryableFailure(_first_line(error), repeat=request.repeatable) from error
            raise ConfigError(
                f"{session.server}: TLS failed ({_first_line(error)}); "
                "check certificate-authority-data and server of the kubeconfig"
            ) from error
        except HTTPError as error:
            never_sent = isinstance(error, (NewConnectionError, ConnectTimeoutError))
            raise RetryableFailure(_first_line(error), repeat=never_sent or request.repeatable) from error


def _after(request: ApiRequest) -> str:
    if request.method == "GET":
        return "nothing was changed; again when it is back, or see server of the kubeconfig"
    return "what became of it is unknown until the server is back"


def _is_disconnect(error: SSLError) -> bool:
    """Whoever stands before a server that is away takes connections and closes them: that says nothing of TLS."""
    return bool(error.args) and isinstance(error.args[0], ssl.SSLEOFError | ssl.SSLZeroReturnError)


def _read(request: ApiRequest, response: HttpResponse, *, until: float) -> bytes:
    """The whole body; bounded in time and size."""
    data = bytearray()
    try:
        for chunk in _pieces(response):
            data += chunk
            if len(data) > _MAX_ANSWER_BYTES or time.monotonic() > until:
                raise RetryableFailure(
                    f"an answer that does not end, {len(data)} bytes so far", repeat=request.repeatable
                )
    except HTTPError as error:
        raise RetryableFailure(_first_line(error), repeat=request.repeatable) from error
    finally:
        response.close()  # a connection with unread bytes would fail the next request; a finished one is in the pool
    return bytes(data)


def _pieces(response: HttpResponse) -> Iterator[bytes]:
    """The body as it arrives; `response.stream` would wait for a full piece, however slowly bytes come."""
    while piece := response.read1(_CHUNK_BYTES):
        yield piece


def _checked_response(request: ApiRequest, response: HttpResponse, data: bytes) -> ApiResponse:
    body = _parsed(data)
    if body is None and response.status < 300:
        raise RetryableFailure(f"{response.status} with a body that is no object", repeat=request.repeatable)
    answer = ApiResponse(status=response.status, body=body or {"message": data[:500].decode(errors="replace")})
    if not is_retryable(answer.status, answer.body):
        return answer
    raise RetryableFailure(
        f"{answer.status} {server_message(answer.body)}",
        repeat=request.repeatable or not may_have_happened(answer.status, answer.body),
        retry_after_seconds=_retry_after(response),
    )


def _parsed(data: bytes) -> Object | None:
    try:
        body = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return body if isinstance(body, dict) else None


def _chunks(request: ApiRequest, response: HttpResponse, *, ends: float) -> Iterator[bytes]:
    try:
        for chunk in _pieces(response):
            yield chunk
            if time.monotonic() > ends:
                return
    except ReadTimeoutError as error:
        if time.monotonic() <= ends:
            raise ApiUnavailable(f"{request}: silence, which a server that lives would have broken") from error
    except HTTPError as error:
        raise ApiUnavailable(f"{request}: broken off ({_first_line(error)})") from error


def _wait(error: Exception, until: float) -> bool | float:
    """stamina's backoff hook: by the usual backoff, or after what the server asked for if that is in time."""
    if not isinstance(error, RetryableFailure) or not error.repeat:
        return False
    asked = error.retry_after_seconds
    if asked is None:
        return True
    return asked if time.monotonic() + asked < until else False


def _retry_after(response: HttpResponse) -> float | None:
    value = response.headers.get("Retry-After", "")
    return float(value) if value.isdecimal() else None


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0][:300] if str(error) else type(error).__name__
