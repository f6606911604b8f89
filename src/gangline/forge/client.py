"""HTTP client of a forge's API: requests bounded in time and size, no redirects, errors by class.

No URL of an answer is followed: paths are built here and pages are counted. Tokens are read for each request, sent in
one header and never logged. A forge that names a time (`Retry-After`, an exhausted rate limit) gets no request until
then.
"""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

from gangline.errors import ConfigError, GanglineError, StorageError
from gangline.forge.protocol import MalformedDeliveryError
from gangline.http.address_check import Origin, Resolve, system_resolve
from gangline.http.client import BodyTooLarge, HttpClient, HttpResponse
from gangline.http.connections import checked
from gangline.http.retry import Deadline, NoAnswer, NotCarriedOut, OutcomeUnknown, RetryPolicy, TlsFailed, retry
from gangline.sanitize import clean

REQUEST_SECONDS = 10.0
"""Time limit of one request, from looking up the name to the last byte."""
RETRY_SECONDS = 0.5
ANSWER_BYTES = 8 << 20
MAX_PAGES = 50
MAX_RETRY_AFTER_SECONDS = 3600.0
"""Longest wait that a forge may demand."""
_READS = RetryPolicy(initial_seconds=RETRY_SECONDS, jitter_seconds=0.0, attempts=2)
_WRITES = RetryPolicy(attempts=1)
RequestCounter = Callable[[str, str], None]
"""Called with the forge's name and one of ok, refused, limited, failed."""


@dataclass(frozen=True, slots=True)
class ForgeResponse:
    """One response of a forge's API."""

    status: int
    headers: Mapping[str, str]
    """Names in lower case."""
    data: Any
    """Parsed JSON; None where it is none."""
    is_json: bool = True
    """Whether there was any: `null` is JSON, too."""

    @property
    def said(self) -> str:
        """The forge's error message, sanitized to one line."""
        message = self.data.get("message") or self.data.get("error") if isinstance(self.data, dict) else None
        return clean(str(message), limit=200) if message else "without a reason"


class ForgeClient:
    """API of a forge. Raises StorageError if it is unavailable or limits rates, ConfigError if it refuses requests."""

    def __init__(
        self,
        *,
        name: str,
        origin: Origin,
        token_header: Callable[[], Mapping[str, str]],
        resolve: Resolve = system_resolve,
        counted: RequestCounter | None = None,
        seconds: float = REQUEST_SECONDS,
    ) -> None:
        self.name = name
        self._origin = origin
        self._token_header = token_header
        self._counted = counted or (lambda *_: None)
        self._seconds = seconds
        self._http = HttpClient(checked(origin.host, named_by_site=origin.named_by_site, resolve=resolve))
        self._quiet_until = 0.0

    def get(self, path: str, **query: str | int) -> Any:
        """JSON at `path`; None where there is nothing (404)."""
        answer = self._get(path, query)
        if answer is not None and answer.data is None:
            raise self._not_its_api(path)
        return None if answer is None else answer.data

    def demand(self, path: str, repository: str) -> None:
        """Check that the token can read the repository, before a missing part of it is believed to be deleted.

        Raises:
            ConfigError: It is not, so its contents are not known.
        """
        if self.get(path) is None:
            raise ConfigError(
                f"{self._where} knows no {repository}, or hides it from this token; right forge.{self.name}.projects,"
                f" or let forge.{self.name}.token read it"
            )

    def pages(self, path: str, *, size: int, size_name: str = "per_page", **query: str | int) -> Iterator[Any]:
        """Items of a list, page after page.

        Raises:
            StorageError: There are more pages than anybody should read.
        """
        for page in range(1, MAX_PAGES + 1):
            answer = self._get(path, {**query, size_name: size, "page": page})
            items = (answer.data or []) if answer else []  # Gitea's list of nothing is null
            if not isinstance(items, list):
                raise StorageError(f"{self._where}: wanted a list at {path}, found {type(items).__name__}")
            yield from items
            if answer is None or 'rel="next"' not in answer.headers.get("link", ""):
                return
        raise StorageError(f"{self._where}: {path} has more than {MAX_PAGES} pages of {size}")

    def send(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> ForgeResponse:
        """Send any other request; statuses from 400 on are errors, except 400, 404 and 409, which the caller reads."""
        answer = self._exchange(method, path, body, _WRITES)
        if answer.status in (400, 404, 409) or answer.status < 300:
            self._counted(self.name, "ok")
            return answer
        raise self._error(answer, f"{method} {path}")

    @property
    def _where(self) -> str:
        return f"forge {self.name} ({self._origin.url})"

    def _get(self, path: str, query: Mapping[str, str | int]) -> ForgeResponse | None:
        target = f"{path}?{urlencode(query)}" if query else path
        answer = self._exchange("GET", target, None, _READS)
        if answer.status == 404:
            self._counted(self.name, "ok")
            return None
        if answer.status >= 300:
            raise self._error(answer, f"GET {path}")
        if not answer.is_json:  # a log-in page, a proxy's words: nothing is known then, least of all that it is gone
            raise self._not_its_api(path)
        self._counted(self.name, "ok")
        return answer

    def _exchange(self, method: str, target: str, body: Mapping[str, Any] | None, tries: RetryPolicy) -> ForgeResponse:
        """An answer of any status but 5xx and 429."""
        deadline = Deadline((tries.attempts or 1) * (self._seconds + RETRY_SECONDS))
        try:
            return retry(lambda: self._send(method, target, body), deadline=deadline, policy=tries)
        except NoAnswer as error:
            raise StorageError(str(error)) from error

    def _send(self, method: str, target: str, body: Mapping[str, Any] | None) -> ForgeResponse:
        """One try; NoAnswer, with the whole message, where another one may be answered."""
        wait = self._quiet_until - time.monotonic()
        if wait > 0:
            raise StorageError(f"{self._where} is rate limited; it accepts requests again in {wait:.0f} s")
        content = None if body is None else json.dumps(body).encode()
        headers = {"Accept": "application/json", "User-Agent": "gangline", "Connection": "close",
                   **self._token_header()}  # fmt: skip
        if content is not None:
            headers["Content-Type"] = "application/json"
        host = self._origin.url.removeprefix(f"{self._origin.scheme}://").partition("/")[0]
        url = f"{self._origin.scheme}://{host}{self._origin.path}{target}"
        try:
            response = self._http.request(
                method, url, headers=headers, body=content, deadline=Deadline(self._seconds), max_bytes=ANSWER_BYTES
            )
        except BodyTooLarge as error:
            raise self._failed(
                StorageError(f"forge {self.name}: the response is larger than {ANSWER_BYTES >> 20} MiB")
            ) from error
        except NotCarriedOut as error:
            raise self._failed(
                NotCarriedOut(f"forge {self.name}: {self._origin.url} cannot be reached: {error}")
            ) from error
        except (NoAnswer, TlsFailed) as error:
            raise self._failed(
                OutcomeUnknown(f"{self._where} does not answer: {clean(str(error), limit=200)}")
            ) from error
        except GanglineError as error:
            raise self._failed(type(error)(f"forge {self.name}: {error}")) from error
        answer = _read(response)
        if _limit_seconds(answer) is not None:
            raise self._error(answer, f"{method} {target.partition('?')[0]}")
        if answer.status >= 500:
            raise OutcomeUnknown(str(self._error(answer, f"{method} {target.partition('?')[0]}")))
        return answer

    def _failed(self, error: Exception) -> Exception:
        self._counted(self.name, "failed")
        return error

    def _not_its_api(self, path: str) -> StorageError:
        self._counted(self.name, "failed")
        return StorageError(f"{self._where} returned something else than its API documents: no JSON at {path}")

    def _error(self, answer: ForgeResponse, asked: str) -> GanglineError:
        limit = _limit_seconds(answer)
        self._counted(self.name, "limited" if limit is not None else "failed" if answer.status >= 500 else "refused")
        if limit is not None:
            self._quiet_until = time.monotonic() + limit
            return StorageError(f"{self._where} limits the rate of requests; it accepts them again in {limit:.0f} s")
        if answer.status >= 500:
            return StorageError(f"{self._where} answered {asked} with {answer.status}: {answer.said}")
        if answer.status < 400:
            return ConfigError(
                f"{self._where} answered {asked} with {answer.status}, a redirect, and none is followed;"
                f" did the repository or the server move? Write its address at forge.{self.name}"
            )
        if answer.status in (401, 403):
            return ConfigError(
                f"{self._where} refuses the token for {asked}: {answer.status} {answer.said};"
                f" give forge.{self.name}.token the rights that docs/guides/forges.md lists"
            )
        return ConfigError(f"{self._where} answered {asked} with {answer.status}: {answer.said}")


@contextmanager
def reading_response(forge: str) -> Iterator[None]:
    """Raise StorageError if the block finds that a response lacks a field of the API."""
    try:
        yield
    except MalformedDeliveryError as error:
        raise StorageError(f"forge {forge} returned something else than its API documents: {error}") from error


def path_segment(text: str) -> str:
    """Any untrusted text as one segment of a URL path; also `.` and `..`."""
    return quote(text, safe="").replace(".", "%2E") if set(text) == {"."} else quote(text, safe="")


def _read(response: HttpResponse) -> ForgeResponse:
    headers = {name.lower(): value for name, value in response.headers.items()}
    try:
        return ForgeResponse(response.status, headers, response.json())
    except ValueError:
        return ForgeResponse(response.status, headers, None, is_json=False)


def _limit_seconds(answer: ForgeResponse) -> float | None:
    """Seconds until the forge accepts requests again; None: it is not rate limiting."""
    spent = answer.headers.get("x-ratelimit-remaining") == "0" and answer.status == 403
    if answer.status != 429 and not spent and not (answer.status == 403 and "retry-after" in answer.headers):
        return None
    after = _number(answer.headers.get("retry-after"))
    if after is None:
        reset = _number(answer.headers.get("x-ratelimit-reset") or answer.headers.get("ratelimit-reset"))
        after = 60.0 if reset is None else reset - time.time()
    return min(max(after, 1.0), MAX_RETRY_AFTER_SECONDS)


def _number(text: str | None) -> float | None:
    return float(text) if text and text.isdigit() and len(text) < 12 else None
