"""HTTP requests to one API server: retries where they are safe, under one deadline for all tries.

The module knows statuses and time; what a request is for is known to `client`. What happens to a request whose answer
is lost depends on `ApiRequest.repeatable`; one that the server cannot have acted on (429, 503, no connection) is
always retried.
"""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar
from urllib.parse import urlencode

from gangline.errors import ConfigError
from gangline.http.client import BodyTooLarge, HttpResponse, HttpStream, TimeLimits
from gangline.http.retry import (
    Deadline,
    NoAnswer,
    NotCarriedOut,
    OutcomeUnknown,
    ReadTimeout,
    RetryPolicy,
    TlsFailed,
    retry,
    retry_after_seconds,
)
from gangline.launch.kubernetes.client.api import (
    ApiUnavailable,
    Object,
    is_retryable,
    may_have_happened,
    parse_path,
    server_message,
)
from gangline.launch.kubernetes.client.auth import ApiSession

_READ_SECONDS = 30.0
"""Longest silence in a call; a stream has a limit of its own."""
_MAX_ANSWER_BYTES = 64 * 2**20
_LEAST_SECONDS = 0.5
"""Least time of the last try, which may begin shortly before the deadline."""
Result = TypeVar("Result")


@dataclass(frozen=True, kw_only=True, slots=True)
class ApiRequest:
    """One request to the API server; `path` is that of the server, `query` is not encoded yet."""

    verb: str
    """Verb of rights: get, list, watch, create, patch, update, delete."""
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


class HttpTransport:
    """Carries requests to a server over HTTP.

    Args:
        sign_in: Called at the start, and again when an answer says 401: credentials end.
        deadline_seconds: Total time of one call, all its tries and waits together.
    """

    def __init__(self, sign_in: Callable[[], ApiSession], *, deadline_seconds: float) -> None:
        self._sign_in = sign_in
        self._deadline_seconds = deadline_seconds
        self.session = sign_in()

    def send(self, request: ApiRequest) -> ApiResponse:
        """The server's answer, whatever its status. Raises `ApiUnavailable`."""

        def attempt(deadline: Deadline) -> ApiResponse:
            return _checked_response(self._open(request, deadline, silence_seconds=_READ_SECONDS), deadline)

        return self._retrying(request, attempt)

    @contextmanager
    def stream(self, request: ApiRequest, *, seconds: float, silence_seconds: float) -> Iterator[ResponseStream]:
        """An answer that is read as it comes, for `seconds` at most, after which it ends. Raises `ApiUnavailable`."""
        ends = time.monotonic() + seconds

        def attempt(deadline: Deadline) -> tuple[HttpStream, ApiResponse | None]:
            opened = self._open(request, deadline, silence_seconds=silence_seconds)
            if opened.status < 300:  # 204: there is nothing yet
                return opened, None
            return opened, _checked_response(opened, deadline)

        opened, refusal = self._retrying(request, attempt)
        with opened:
            yield ResponseStream(refusal=refusal, chunks=iter(()) if refusal else _chunks(request, opened, ends=ends))

    def _retrying(self, request: ApiRequest, attempt: Callable[[Deadline], Result]) -> Result:
        """Call `attempt` with the deadline of a try until it is answered, where the request may be sent again."""
        deadline = Deadline(self._deadline_seconds)
        try:
            return retry(
                lambda: attempt(Deadline(max(deadline.left_seconds(), _LEAST_SECONDS))),
                deadline=deadline,
                policy=RetryPolicy(max_seconds=min(5.0, self._deadline_seconds / 8), jitter_seconds=0.3),
                is_retried=lambda error: request.repeatable or isinstance(error, NotCarriedOut),
            )
        except NoAnswer as last:
            raise ApiUnavailable(
                f"{request}: the API server {self.session.server} gave no answer in "
                f"{deadline.elapsed_seconds():.1f} s ({last}); {_after(request)}"
            ) from last

    def _open(self, request: ApiRequest, deadline: Deadline, *, silence_seconds: float) -> HttpStream:
        opened = self._request(request, deadline, silence_seconds=silence_seconds)
        if opened.status != 401:
            return opened
        opened.close()
        self.session = self._sign_in()
        return self._request(request, deadline, silence_seconds=silence_seconds)

    def _request(self, request: ApiRequest, deadline: Deadline, *, silence_seconds: float) -> HttpStream:
        session = self.session
        query = f"?{urlencode(request.query)}" if request.query else ""
        try:
            return session.http.open(
                request.method,
                f"{session.server}{request.path}{query}",
                headers={"Accept": request.accept, "Content-Type": request.content_type, **session.headers()},
                body=None if request.body is None else json.dumps(request.body).encode(),
                limits=TimeLimits(silence_seconds=silence_seconds),
                deadline=deadline,
            )
        except TlsFailed as error:
            raise ConfigError(
                f"{session.server}: TLS failed ({error}); check certificate-authority-data and server of the kubeconfig"
            ) from error


def _after(request: ApiRequest) -> str:
    if request.method == "GET":
        return "nothing was changed; again when it is back, or see server of the kubeconfig"
    return "what became of it is unknown until the server is back"


def _checked_response(opened: HttpStream, deadline: Deadline) -> ApiResponse:
    """The whole answer, by the deadline; one that allows another try raises NoAnswer."""
    try:
        response: HttpResponse = opened.read(max_bytes=_MAX_ANSWER_BYTES, deadline=deadline)
    except BodyTooLarge as error:
        raise OutcomeUnknown(str(error)) from error
    body = _parsed(response)
    if body is None and response.status < 300:
        raise OutcomeUnknown(f"{response.status} with a body that is not an object")
    answer = ApiResponse(status=response.status, body=body or {"message": response.data[:500].decode(errors="replace")})
    if not is_retryable(answer.status, answer.body):
        return answer
    kind = OutcomeUnknown if may_have_happened(answer.status, answer.body) else NotCarriedOut
    raise kind(
        f"{answer.status} {server_message(answer.body)}", retry_after_seconds=retry_after_seconds(response.headers)
    )


def _parsed(response: HttpResponse) -> Object | None:
    try:
        body = response.json()
    except ValueError:
        return None
    return body if isinstance(body, dict) else None


def _chunks(request: ApiRequest, opened: HttpStream, *, ends: float) -> Iterator[bytes]:
    try:
        for chunk in opened.pieces():
            yield chunk
            if time.monotonic() > ends:
                return
    except ReadTimeout as error:
        if time.monotonic() <= ends:
            raise ApiUnavailable(f"{request}: no data from the server for too long ({error})") from error
    except NoAnswer as error:
        raise ApiUnavailable(f"{request}: the connection broke ({error})") from error
