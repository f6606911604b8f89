"""Signed requests to one S3 endpoint: retries, deadline, and what the responses mean."""

import hashlib
import ssl
import time
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from math import inf
from typing import TypedDict, TypeVar, Unpack
from urllib.parse import quote, urlsplit

import stamina
import urllib3
from minio.credentials.credentials import Credentials
from minio.signer import sign_v4_s3
from urllib3.exceptions import ConnectTimeoutError, HTTPError, NewConnectionError, SSLError

from gangline.errors import StorageError
from gangline.storage.objects.errors import PermissionDenied
from gangline.storage.s3.credentials import CredentialSource
from gangline.storage.s3.errors import error_code, explain, is_about_credentials
from gangline.storage.s3.unix_socket import open_pool

Response = urllib3.BaseHTTPResponse
Result = TypeVar("Result")

_BUSY = (429, 503)
_ABOUT_KEY = ("NoSuchKey", "NoSuchUpload")
"""Codes of a 404 that is an answer; others mean that bucket or credentials are wrong."""
_CONNECT_SECONDS = 5.0
_REQUEST_SECONDS = 60.0
"""Of silence: a transfer that goes on may take longer."""
_LEAST_SECONDS = 0.1


class S3Unanswered(Exception):
    """No answer, or one that means: again."""

    def __init__(self, reason: str, *, may_have_happened: bool, retry_after_seconds: float | None = None) -> None:
        super().__init__(reason)
        self.may_have_happened = may_have_happened
        self.retry_after_seconds = retry_after_seconds


@dataclass(frozen=True, kw_only=True, slots=True)
class S3Endpoint:
    """Where the requests go; `url` stands in messages."""

    url: str
    endpoint: str
    bucket: str
    region: str


@dataclass(slots=True)
class _Call:
    """What all tries of one request share."""

    credentials: Credentials
    """Read once: a file that holds them may change at any moment."""
    until: float
    """End of its time, on the monotonic clock."""
    may_ask_again: bool = True
    """By another credential, once, where the server no longer accepts this one."""


_running: ContextVar[_Call | None] = ContextVar("running", default=None)


class RequestOptions(TypedDict, total=False):
    """Of a request, beside its method and path."""

    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes | memoryview
    accept: tuple[int, ...]
    """Statuses that are an answer."""


class S3Client:
    def __init__(
        self,
        place: S3Endpoint,
        credentials: CredentialSource,
        *,
        deadline_seconds: float,
        greeting_seconds: float = inf,
    ) -> None:
        self.place = place
        self._credentials = credentials
        self.is_proven = False
        """Has the server shown that it knows our credentials and the bucket?"""
        self._is_met = False
        """Did anybody ever answer there?"""
        self._deadline_seconds = deadline_seconds
        self._greeting_seconds = greeting_seconds
        self._pool = open_pool(maxsize=32, retries=False)

    def credentials(self) -> Credentials:
        """As they are now: one value, which does not change while it is used."""
        return self._credentials.current()

    def send(self, method: str, path: str = "", **details: Unpack[RequestOptions]) -> Response:
        """Send what may safely be sent twice; a status that is neither success nor in `accept` raises."""
        return self.retrying(f"{method} {path or '(bucket)'}", lambda: self.once(method, path, **details))

    def retrying(self, what: str, attempt: Callable[[], Result]) -> Result:
        """Call `attempt` until it is answered, with backoff, jitter, Retry-After and one deadline for all tries."""
        began = time.monotonic()
        running = _running.set(_Call(self.credentials(), until=began + self._deadline_seconds))
        retry = stamina.RetryingCaller(
            attempts=None, timeout=self._deadline_seconds, wait_initial=0.05, wait_max=5.0, wait_jitter=0.2
        )
        try:
            return retry(lambda error: self._goes_on(error, began) and _wait(error), attempt)
        except S3Unanswered as last:
            raise StorageError(
                f"store {self.place.url} at {self.place.endpoint}: no answer to {what} "
                f"in {time.monotonic() - began:.0f} s ({last}); is the server up and reachable from here? "
                "Check store.endpoint, of pods store.cluster_endpoint, then run `gangline store doctor`"
            ) from last
        finally:
            _running.reset(running)

    def once(self, method: str, path: str = "", **details: Unpack[RequestOptions]) -> Response:
        """One request, one answer, or `Unanswered`; inside `retrying`, in what is left of its time.

        Where its credential has ended, and there is another by now, it is sent once more with that one.
        """
        call = _running.get() or _Call(self.credentials(), until=inf)
        answer = self._exchange(call, method, path, details)
        if call.may_ask_again and is_about_credentials(method, answer):
            call.may_ask_again = False
            if (another := self._credentials.another(call.credentials)) is not None:
                call.credentials, self.is_proven = another, False
                answer = self._exchange(call, method, path, details)
        return self._judged(method, path, answer, details.get("accept", ()))

    def _exchange(self, call: _Call, method: str, path: str, details: RequestOptions) -> Response:
        url, body = self._url(path, details.get("query", {})), details.get("body", b"")
        left_seconds = max(call.until - time.monotonic(), _LEAST_SECONDS)
        try:
            answer = self._pool.request(
                method,
                url,
                body=body,  # type: ignore[arg-type]  # urllib3 sends any buffer as it is
                headers=self._signed(call.credentials, method, url, details.get("headers", {}), body),
                timeout=urllib3.Timeout(
                    connect=min(_CONNECT_SECONDS, left_seconds), read=min(_REQUEST_SECONDS, left_seconds)
                ),
            )
        except SSLError as error:
            if error.args and isinstance(error.args[0], ssl.SSLEOFError | ssl.SSLZeroReturnError):
                raise S3Unanswered(_first_line(error), may_have_happened=True) from error  # broken off: nothing of TLS
            raise StorageError(f"{self.place.endpoint}: TLS failed ({error}); check store.endpoint") from error
        except HTTPError as error:
            never_sent = isinstance(error, (NewConnectionError, ConnectTimeoutError))
            raise S3Unanswered(_first_line(error), may_have_happened=not never_sent) from error
        self._is_met = True
        return answer

    def _judged(self, method: str, path: str, answer: Response, accept: tuple[int, ...]) -> Response:
        code = error_code(answer) if answer.status >= 300 else ""
        self.is_proven |= answer.status < 300 or code in _ABOUT_KEY
        if answer.status < 300 or (answer.status in accept and (answer.status != 404 or code in ("", *_ABOUT_KEY))):
            return answer
        if answer.status in _BUSY or code == "ConditionalRequestConflict":
            raise S3Unanswered(
                f"{answer.status} {code}", may_have_happened=False, retry_after_seconds=_retry_after(answer)
            )
        if answer.status >= 500 and answer.status not in (501, 507):
            raise S3Unanswered(f"{answer.status} {code}", may_have_happened=True)
        raise self.refused(method, path, answer)

    def _goes_on(self, error: Exception, began: float) -> bool:
        """A server that never answered is not waited for as long as one that did: the endpoint may be wrong."""
        is_stranger = not self._is_met and isinstance(error, S3Unanswered) and not error.may_have_happened
        return not is_stranger or time.monotonic() - began < self._greeting_seconds

    def refused(self, method: str, path: str, answer: Response) -> StorageError:
        """The error that says what the server refused, and what works."""
        code = error_code(answer)
        kind = PermissionDenied if code == "AccessDenied" else StorageError
        return kind(
            f"store {self.place.url} at {self.place.endpoint}: {method} {path or '(bucket)'} was refused "
            f"with {answer.status} {code}: {explain(answer.status, code, bucket=self.place.bucket)}"
        )

    def _url(self, path: str, query: Mapping[str, str]) -> str:
        # minio's signer sorts a query; urllib3 sends it as it stands.
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


def _wait(error: Exception) -> bool | float:
    """stamina's backoff hook: by the usual backoff, or after what the server asked for if that is in time."""
    if not isinstance(error, S3Unanswered):
        return False
    asked, call = error.retry_after_seconds, _running.get()
    if asked is None or call is None:
        return True
    return asked if time.monotonic() + asked < call.until else False


def _retry_after(answer: Response) -> float | None:
    value = answer.headers.get("Retry-After", "")
    return float(value) if value.isdigit() else None


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0][:200] if str(error) else type(error).__name__
