"""HTTP requests to a pipelines server below `/apis/v2beta1`: bearer token, one deadline, no blind retry.

A missing answer means that the request may have been carried out: reads are retried here, creating is left to the
caller, which looks first.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode, urlsplit

from gangline.errors import ConfigError, StorageError, UsageError
from gangline.http.client import BodyTooLarge, HttpClient, HttpResponse, TimeLimits, multipart_form
from gangline.http.connections import checked
from gangline.http.retry import Deadline, NoAnswer, OutcomeUnknown, TlsFailed, retry

ROOT = "/apis/v2beta1"
_AGAIN = (408, 429, 500, 502, 503, 504)
_MOST_BYTES = 32 << 20


@dataclass(frozen=True, slots=True)
class KfpHttp:
    """The API of one pipelines server."""

    endpoint: str
    token: Callable[[], str | None]
    """Asked before each request: tokens are renewed."""
    deadline_seconds: float = 60.0
    """Time limit of one call, all its tries together."""
    request_seconds: float = 20.0
    """Time limit of one try."""

    def get(self, path: str, query: Mapping[str, str] | None = None) -> dict[str, Any]:
        """Read, again until the deadline.

        Raises:
            StorageError: No answer in time.
        """
        return self.with_retries(lambda: self.request("GET", path, query=query))

    def with_retries(self, attempt: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Call `attempt` until it is answered, also after a request whose outcome is unknown.

        Raises:
            StorageError: No answer within the deadline.
        """
        tries = 0

        def counted() -> dict[str, Any]:
            nonlocal tries
            tries += 1
            return attempt()

        try:
            return retry(counted, deadline=Deadline(self.deadline_seconds))
        except NoAnswer as error:
            raise StorageError(
                f"{self.endpoint}: no answer in {self.deadline_seconds:.0f} s and {tries} tries, the last:"
                f" {error}; is the server up? The same command resumes the run"
            ) from error

    def request(
        self, method: str, path: str, *, query: Mapping[str, str] | None = None, body: Any = None,
        file: bytes | None = None,
    ) -> dict[str, Any]:  # fmt: skip
        """One request.

        Raises:
            NoAnswer: There was no response, or one that allows another try; the outcome of the request is unknown.
            UsageError: There is no such thing.
            ConfigError: Refused, with the server's words.
        """
        url = f"{self.endpoint.rstrip('/')}{ROOT}{path}" + (f"?{urlencode(query)}" if query else "")
        try:
            answer = self._send(method, url, body, file, max_bytes=_MOST_BYTES)
        except BodyTooLarge as error:
            raise ConfigError(f"{method} {path}: wanted an answer below {_MOST_BYTES} bytes, found more") from error
        return _read(method, path, answer)

    def text(self, path: str) -> str:
        """The answer to one request for a text, its last 32 MiB.

        Raises:
            NoAnswer: None came, or another status than 200.
        """
        answer = self._send("GET", f"{self.endpoint.rstrip('/')}{path}", None, None)
        if answer.status != 200:
            raise OutcomeUnknown(f"GET {path}: HTTP {answer.status}")
        return answer.data[-_MOST_BYTES:].decode(errors="replace")

    def _send(
        self, method: str, url: str, body: Any, file: bytes | None, *, max_bytes: int | None = None
    ) -> HttpResponse:
        headers = {"Accept": "application/json"}
        if token := self.token():
            headers["Authorization"] = f"Bearer {token}"
        data: bytes | None = None
        if file is not None:
            data, headers["Content-Type"] = multipart_form("uploadfile", "pipeline.yaml", file, "application/yaml")
        elif body is not None:
            data, headers["Content-Type"] = json.dumps(body).encode(), "application/json"
        client = HttpClient(
            checked(urlsplit(url).hostname or "", named_by_site=True),
            limits=TimeLimits(connect_seconds=self.request_seconds, silence_seconds=self.request_seconds),
        )
        try:
            return client.request(method, url, headers=headers, body=data, max_bytes=max_bytes)
        except TlsFailed as error:
            raise StorageError(f"{self.endpoint}: TLS failed ({error}); see kfp.endpoint") from error
        finally:
            client.close()


def _read(method: str, path: str, response: HttpResponse) -> dict[str, Any]:
    status = response.status
    if status in _AGAIN:
        raise OutcomeUnknown(f"{method} {path}: HTTP {status}")
    try:
        answer = response.json() if response.data else {}
    except ValueError as error:
        raise ConfigError(_unexpected_response(method, path, status)) from error
    if not isinstance(answer, dict):
        raise ConfigError(_unexpected_response(method, path, status))
    if status == 404:
        raise UsageError(f"{method} {path}: there is none: {answer.get('message', '')}")
    if status in (401, 403):
        raise ConfigError(f"{method} {path}: refused with HTTP {status}: {answer.get('message', '')}; see kfp.token")
    if status >= 300:
        raise ConfigError(f"{method} {path}: HTTP {status}: {answer.get('message', '')}")
    return answer


def _unexpected_response(method: str, path: str, status: int) -> str:
    return f"{method} {path}: wanted JSON of a pipelines server, found something else (HTTP {status}); see kfp.endpoint"


def check_endpoint(endpoint: str) -> str:
    """Raises ConfigError for what is no http(s) address."""
    parts = urlsplit(endpoint)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise ConfigError(f"kfp.endpoint: wanted http://host:port or https://host, found {endpoint!r}")
    return endpoint
