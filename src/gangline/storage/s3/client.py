"""Signed requests to one S3 endpoint: retries, deadline, and what the responses mean."""

import hashlib
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from math import inf
from pathlib import Path
from typing import TypedDict, TypeVar, Unpack
from urllib.parse import quote, urlsplit

from minio.credentials.credentials import Credentials
from minio.signer import sign_v4_s3

from gangline.errors import StorageError
from gangline.http.client import HttpClient, HttpResponse, TimeLimits
from gangline.http.retry import (
    Deadline,
    NoAnswer,
    NotCarriedOut,
    OutcomeUnknown,
    RetryPolicy,
    TlsFailed,
    retry,
    retry_after_seconds,
)
from gangline.storage.objects.errors import PermissionDenied
from gangline.storage.s3.credentials import CredentialSource
from gangline.storage.s3.errors import error_code, explain, is_about_credentials
from gangline.storage.s3.unix_socket import store_dial

Result = TypeVar("Result")

_BUSY = (429, 503)
_ABOUT_KEY = ("NoSuchKey", "NoSuchUpload")
"""Codes of a 404 that is an answer; others mean that bucket or credentials are wrong."""
_SILENCE_SECONDS = 60.0
"""Read time-out of a transfer; one that keeps receiving may take longer than the deadline."""
_LEAST_SECONDS = 0.1
_RETRIES = RetryPolicy(initial_seconds=0.05, max_seconds=5.0, jitter_seconds=0.2)


@dataclass(frozen=True, kw_only=True, slots=True)
class S3Endpoint:
    """Server and bucket of the requests; `url` is for messages."""

    url: str
    endpoint: str
    bucket: str
    region: str


@dataclass(slots=True)
class _Call:
    """What all tries of one request share."""

    credentials: Credentials
    """Read once: a file that holds them may change at any moment."""
    deadline: Deadline
    may_ask_again: bool = True
    """Once, with another credential, if the server no longer accepts this one."""


_running: ContextVar[_Call | None] = ContextVar("running", default=None)


class RequestOptions(TypedDict, total=False):
    """Options of a request, except method and path."""

    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes | memoryview
    accept: tuple[int, ...]
    """Statuses that are an answer."""


class S3Client:
    """Signed requests to one bucket.

    Args:
        place: Server, bucket and region.
        credentials: Read at the beginning of each call.
        deadline_seconds: Total time of one call, all its tries and waits together.
        connect_seconds: Time in which a connection must come about at all, the first time.
        socket_folder: Holds the socket to the server, in a sandbox; None: it is dialled.

    Attributes:
        place: As given.
        http: The client under it, for requests that are signed otherwise.
        is_proven: The server has shown that it knows the credentials and the bucket.
    """

    def __init__(
        self,
        place: S3Endpoint,
        credentials: CredentialSource,
        *,
        deadline_seconds: float,
        connect_seconds: float = inf,
        socket_folder: Path | None = None,
    ) -> None:
        self.place = place
        self._credentials = credentials
        self.is_proven = False
        self._is_met = False
        """A server has answered at least once."""
        self._deadline_seconds = deadline_seconds
        self._connect_seconds = connect_seconds
        self.http = HttpClient(store_dial(socket_folder), connections=32)

    def credentials(self) -> Credentials:
        """Credentials as they are now: one value, which does not change while it is used."""
        return self._credentials.current()

    def send(self, method: str, path: str = "", **details: Unpack[RequestOptions]) -> HttpResponse:
        """Send what may safely be sent twice; a status that is neither success nor in `accept` raises."""
        return self.retrying(f"{method} {path or '(bucket)'}", lambda: self.once(method, path, **details))

    def retrying(self, what: str, attempt: Callable[[], Result]) -> Result:
        """Call `attempt` until it is answered, with backoff, jitter, Retry-After and one deadline for all tries."""
        deadline = Deadline(self._deadline_seconds)
        running = _running.set(_Call(self.credentials(), deadline))
        try:
            return retry(
                attempt,
                deadline=deadline,
                policy=_RETRIES,
                is_retried=lambda error: self._is_worth_waiting(error, deadline),
            )
        except NoAnswer as last:
            raise StorageError(
                f"store {self.place.url} at {self.place.endpoint}: no answer to {what} "
                f"in {deadline.elapsed_seconds():.0f} s ({last}); is the server up and reachable from here? "
                "Check store.endpoint, of pods store.cluster_endpoint, then run `gangline store doctor`"
            ) from last
        finally:
            _running.reset(running)

    def once(self, method: str, path: str = "", **details: Unpack[RequestOptions]) -> HttpResponse:
        """One request, one answer, or `NoAnswer`; inside `retrying`, in what is left of its time.

        Where its credential has ended, and there is another by now, it is sent once more with that one.
        """
        call = _running.get() or _Call(self.credentials(), Deadline(inf))
        answer = self._exchange(call, method, path, details)
        if call.may_ask_again and is_about_credentials(method, answer):
            call.may_ask_again = False
            if (another := self._credentials.another(call.credentials)) is not None:
                call.credentials, self.is_proven = another, False
                answer = self._exchange(call, method, path, details)
        return self._judged(method, path, answer, details.get("accept", ()))

    def _exchange(self, call: _Call, method: str, path: str, details: RequestOptions) -> HttpResponse:
        url, body = self._url(path, details.get("query", {})), details.get("body", b"")
        left_seconds = max(call.deadline.left_seconds(), _LEAST_SECONDS)
        try:
            opened = self.http.open(
                method,
                url,
                headers=self._signed(call.credentials, method, url, details.get("headers", {}), body),
                body=body,
                limits=TimeLimits(silence_seconds=min(_SILENCE_SECONDS, left_seconds)),
                deadline=Deadline(left_seconds),
            )
            self._is_met = True
            return opened.read()
        except TlsFailed as error:
            raise StorageError(f"{self.place.endpoint}: TLS failed ({error}); check store.endpoint") from error

    def _judged(self, method: str, path: str, answer: HttpResponse, accept: tuple[int, ...]) -> HttpResponse:
        code = error_code(answer) if answer.status >= 300 else ""
        self.is_proven |= answer.status < 300 or code in _ABOUT_KEY
        if answer.status < 300 or (answer.status in accept and (answer.status != 404 or code in ("", *_ABOUT_KEY))):
            return answer
        if answer.status in _BUSY or code == "ConditionalRequestConflict":
            raise NotCarriedOut(f"{answer.status} {code}", retry_after_seconds=retry_after_seconds(answer.headers))
        if answer.status >= 500 and answer.status not in (501, 507):
            raise OutcomeUnknown(f"{answer.status} {code}")
        raise self.refused(method, path, answer)

    def _is_worth_waiting(self, error: NoAnswer, deadline: Deadline) -> bool:
        """Whether to try again: a server that never answered gets a shorter deadline, as the endpoint may be wrong."""
        was_reached = self._is_met or isinstance(error, OutcomeUnknown)
        return was_reached or deadline.elapsed_seconds() < self._connect_seconds

    def refused(self, method: str, path: str, answer: HttpResponse) -> StorageError:
        """Error with the server's refusal and what works instead."""
        code = error_code(answer)
        kind = PermissionDenied if code == "AccessDenied" else StorageError
        return kind(
            f"store {self.place.url} at {self.place.endpoint}: {method} {path or '(bucket)'} was refused "
            f"with {answer.status} {code}: {explain(answer.status, code, bucket=self.place.bucket)}"
        )

    def _url(self, path: str, query: Mapping[str, str]) -> str:
        # minio's signer sorts a query; the client sends it as it is.
        text = "&".join(f"{quote(name, safe='')}={quote(value, safe='')}" for name, value in sorted(query.items()))
        place = f"{self.place.endpoint}/{self.place.bucket}"
        return place + (f"/{quote(path)}" if path else "") + (f"?{text}" if text else "")

    def _signed(
        self, credentials: Credentials, method: str, url: str, headers: Mapping[str, str], body: bytes | memoryview
    ) -> dict[str, str]:
        now = datetime.now(UTC)
        digest = hashlib.sha256(body).hexdigest()
        plain = {
            **headers,
            "Host": urlsplit(url).netloc,
            "x-amz-content-sha256": digest,
            "x-amz-date": now.strftime("%Y%m%dT%H%M%SZ"),
        }
        if credentials.session_token:
            plain["X-Amz-Security-Token"] = credentials.session_token
        signed = sign_v4_s3(
            method=method,
            url=urlsplit(url),
            region=self.place.region,
            headers=dict(plain),
            credentials=credentials,
            content_sha256=digest,
            date=now,
        )
        return {name: str(value) for name, value in signed.items()}
