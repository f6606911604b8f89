"""HTTP requests to a pipelines server below `/apis/v2beta1`: bearer token, one deadline, no blind retry.

A missing answer means that the request may have been carried out: reads are retried here, creating is left to the
caller, which looks first.
"""

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode, urlsplit

import urllib3

from gangline.errors import ConfigError, StorageError, UsageError
from gangline.http.checked_pool import checked_pool

ROOT = "/apis/v2beta1"
_PAUSES = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
_AGAIN = (408, 429, 500, 502, 503, 504)
_MOST_BYTES = 32 << 20


class KfpUnansweredError(Exception):
    """No answer, or one that means: again; a request that creates may have been carried out."""


@dataclass(frozen=True, slots=True)
class KfpHttp:
    endpoint: str
    token: Callable[[], str | None]
    """Asked before each request: tokens are renewed."""
    deadline_seconds: float = 60.0
    request_seconds: float = 20.0

    def get(self, path: str, query: Mapping[str, str] | None = None) -> dict[str, Any]:
        """Read, again until the deadline.

        Raises:
            StorageError: No answer in time.
        """
        return self.patiently(lambda: self.once("GET", path, query=query))

    def patiently(self, ask: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """`ask` until it is answered; it is called again after every answer that did not come."""
        until = time.monotonic() + self.deadline_seconds
        tries = 0
        while True:
            try:
                return ask()
            except KfpUnansweredError as error:
                pause = _PAUSES[min(tries, len(_PAUSES) - 1)]
                tries += 1
                if time.monotonic() + pause > until:
                    raise StorageError(
                        f"{self.endpoint}: no answer in {self.deadline_seconds:.0f} s and {tries} tries, the last:"
                        f" {error}; is the server up? The run goes on by the same command"
                    ) from error
                time.sleep(pause)

    def once(
        self, method: str, path: str, *, query: Mapping[str, str] | None = None, body: Any = None,
        file: bytes | None = None,
    ) -> dict[str, Any]:  # fmt: skip
        """One request.

        Raises:
            Unanswered: Nobody knows whether it was carried out.
            UsageError: There is no such thing.
            ConfigError: Refused, with the server's words.
        """
        url = f"{self.endpoint.rstrip('/')}{ROOT}{path}" + (f"?{urlencode(query)}" if query else "")
        try:
            answer = self._send(method, url, body, file)
        except urllib3.exceptions.HTTPError as error:
            raise KfpUnansweredError(f"{method} {path}: {type(error).__name__}") from error
        return _read(method, path, answer.status, answer.data)

    def text(self, path: str) -> str:
        """What one request for a text is answered with.

        Raises:
            Unanswered: With none.
        """
        try:
            answer = self._send("GET", f"{self.endpoint.rstrip('/')}{path}", None, None)
        except urllib3.exceptions.HTTPError as error:
            raise KfpUnansweredError(f"GET {path}: {type(error).__name__}") from error
        if answer.status != 200:
            raise KfpUnansweredError(f"GET {path}: HTTP {answer.status}")
        return answer.data[-_MOST_BYTES:].decode(errors="replace")

    def _send(self, method: str, url: str, body: Any, file: bytes | None) -> urllib3.BaseHTTPResponse:
        headers = {"Accept": "application/json"}
        if token := self.token():
            headers["Authorization"] = f"Bearer {token}"
        options: dict[str, Any] = {}
        if file is not None:
            options["fields"] = {"uploadfile": ("pipeline.yaml", file, "application/yaml")}
        elif body is not None:
            headers["Content-Type"] = "application/json"
            options["body"] = json.dumps(body).encode()
        with checked_pool(urlsplit(url).hostname or "", named_by_site=True, num_pools=1) as pool:
            return pool.request(
                method, url, headers=headers, retries=False, redirect=False, timeout=self.request_seconds, **options
            )


def _read(method: str, path: str, status: int, data: bytes) -> dict[str, Any]:
    if status in _AGAIN:
        raise KfpUnansweredError(f"{method} {path}: HTTP {status}")
    if len(data) > _MOST_BYTES:
        raise ConfigError(f"{method} {path}: wanted an answer below {_MOST_BYTES} bytes, found {len(data)}")
    try:
        answer = json.loads(data) if data else {}
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
