"""Requests to one image registry: TLS except on loopback, token challenge, redirects without credentials."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, BinaryIO
from urllib.parse import urlencode, urljoin, urlsplit

from gangline.build.image_registry.credentials import RegistryLogin
from gangline.build.image_registry.reference import is_loopback
from gangline.errors import ConfigError, IntegrityError, StorageError
from gangline.http.address_check import Resolve, checked_addresses, read_origin, system_resolve
from gangline.http.retry import (
    Deadline,
    NoAnswer,
    NotCarriedOut,
    RequestFailed,
    RetryPolicy,
    retry,
    retry_after_seconds,
)

if TYPE_CHECKING:  # urllib3 is there where images are built
    from gangline.http.client import HttpClient, HttpStream

PIECE_BYTES = 1 << 20
CONNECT_SECONDS, READ_SECONDS = 10.0, 60.0
RETRY_SECONDS = 60.0
"""Time limit within which the last try of one read begins."""
MAX_REDIRECTS = 3
_API_HOSTS = {"docker.io": "registry-1.docker.io"}
"""Hosts whose API is elsewhere."""
_ATTEMPTS = 5
_TOKEN_BYTES = 1 << 20
_PAIR = re.compile(r'([a-zA-Z]+)="([^"]*)"')
_RETRIED_STATUSES = frozenset({429, 500, 502, 503, 504})
_MOVED = frozenset({301, 302, 303, 307, 308})


def read_pieces(answer: "HttpStream", *, limit: int) -> Iterator[bytes]:
    """The body as it comes; closes the answer.

    Raises:
        IntegrityError: It is longer than `limit` bytes.
        StorageError: It broke off.
    """
    seen = 0
    try:
        with answer:
            for piece in answer.pieces(PIECE_BYTES):
                seen += len(piece)
                if seen > limit:
                    raise IntegrityError(f"wanted at most {limit} bytes from the registry, found more")
                yield piece
    except NoAnswer as error:
        raise StorageError(f"the registry's response ended after {seen} bytes: {error}") from error


def read_body(answer: "HttpStream", *, limit: int) -> bytes:
    """The whole body. Raises as `read_pieces`."""
    return b"".join(read_pieces(answer, limit=limit))


class RegistryHttp:
    """HTTP requests to one image registry, with tokens and checked redirects."""

    def __init__(
        self, host: str, login: RegistryLogin | None, *, named_by_site: bool, resolve: Resolve = system_resolve
    ) -> None:
        """Talk to `host` as `login`, or without one; a host that the site does not name may not have a private
        address."""
        self.host = host
        self._origin = _origin(host)
        self._login = login
        self._granted: dict[str, str] = {}
        """Authorization header by scope."""
        self._http = _client(self._origin, named_by_site=named_by_site, resolve=resolve)

    def ask(
        self,
        method: str,
        path: str,
        *,
        scope: str,
        headers: Mapping[str, str] | None = None,
        body: bytes | BinaryIO | None = None,
    ) -> "HttpStream":
        """One request; a challenge is answered once.

        Args:
            method: HTTP method.
            path: Below the registry, or the absolute address of an upload on it.
            scope: `repository:NAME:pull,push`, what a token is asked for; several are separated by spaces.
            headers: More of them.
            body: A file is sent from its current position.

        Raises:
            ConfigError: The registry does not let us.
            StorageError: No answer, or one that means "later".
        """
        url = self._address(path)
        start = body.tell() if body is not None and not isinstance(body, bytes) else 0
        answer = self._follow(method, url, dict(headers or {}), body, self._granted.get(scope))
        if answer.status == 401:
            answer.close()
            self._granted[scope] = self._grant(answer.headers.get("WWW-Authenticate", ""), scope)
            if body is not None and not isinstance(body, bytes):
                body.seek(start)
            answer = self._follow(method, url, dict(headers or {}), body, self._granted[scope])
        if answer.status in {401, 403}:
            answer.close()
            who = f"user {self._login.user}" if self._login else "an anonymous user: no login was found"
            raise ConfigError(
                f"{self.host} refuses {scope} to {who}; docker login {self.host} with an account that may"
            )
        if answer.status in _RETRIED_STATUSES:
            answer.close()
            raise StorageError(f"registry {self.host} answered {answer.status} to {method} {urlsplit(url).path}")
        return answer

    def _address(self, path: str) -> str:
        url = urljoin(self._origin, path)
        if not url.startswith(self._origin + "/"):
            raise IntegrityError(f"registry {self.host} sends uploads to {url[:200]}, another host; not followed")
        return url

    def _follow(self, method: str, url: str, headers: dict[str, str], body: Any, granted: str | None) -> "HttpStream":
        """Send; a read follows redirections, to other hosts without credentials and over TLS."""
        for _ in range(MAX_REDIRECTS + 1):
            own = url.startswith(self._origin + "/")
            answer = self._send(method, url, headers | ({"Authorization": granted} if granted and own else {}), body)
            if answer.status not in _MOVED or method not in {"GET", "HEAD"}:
                return answer
            answer.close()
            url = urljoin(url, answer.headers.get("Location", ""))
            if urlsplit(url).scheme != "https" and not url.startswith(self._origin + "/"):
                raise IntegrityError(f"registry {self.host} redirects to {url[:200]}, which is not over TLS")
        raise StorageError(f"registry {self.host} redirected {method} more than {MAX_REDIRECTS} times")

    def _send(self, method: str, url: str, headers: Mapping[str, str], body: Any) -> "HttpStream":
        is_read, tries = method in {"GET", "HEAD"}, 0

        def attempt() -> "HttpStream":
            nonlocal tries
            tries += 1
            answer = self._http.open(method, url, headers=headers, body=body, decoded=False)
            if is_read and answer.status in _RETRIED_STATUSES and tries < _ATTEMPTS:
                answer.close()
                raise NotCarriedOut(f"answer {answer.status}", retry_after_seconds=retry_after_seconds(answer.headers))
            return answer

        try:
            return retry(
                attempt,
                deadline=Deadline(RETRY_SECONDS),
                policy=RetryPolicy(initial_seconds=0.2, attempts=_ATTEMPTS),
                is_retried=lambda error: is_read or isinstance(error, NotCarriedOut),
            )
        except RequestFailed as error:
            raise StorageError(f"registry {urlsplit(url).netloc} did not answer {method}: {error}") from error

    def _grant(self, challenge: str, scope: str) -> str:
        """Authorization header for `scope`, as the challenge wants it."""
        kind, _, rest = challenge.partition(" ")
        if kind.lower() == "basic" and self._login:
            return f"Basic {self._login.basic}"
        if kind.lower() != "bearer":
            raise ConfigError(
                f"{self.host} wants a login, and docker's configuration has none; docker login {self.host}"
            )
        return f"Bearer {self._token(dict(_PAIR.findall(rest)), scope)}"

    def _token(self, challenge: Mapping[str, str], scope: str) -> str:
        realm = urlsplit(challenge.get("realm", ""))
        if realm.scheme != "https" and not (realm.scheme == "http" and is_loopback(realm.netloc)):
            raise IntegrityError(f"{self.host} names {challenge.get('realm')!r} for tokens, which is not over TLS")
        wanted = [("scope", part) for part in scope.split()]
        query = urlencode([("service", challenge.get("service", self.host)), *wanted])
        headers = {"Authorization": f"Basic {self._login.basic}"} if self._login else {}
        answer = self._send("GET", f"{realm.geturl()}?{query}", headers, None)
        data = read_body(answer, limit=_TOKEN_BYTES)
        if answer.status != 200:
            raise ConfigError(
                f"{realm.netloc} gives no token for {scope} (answer {answer.status}); docker login {self.host}"
            )
        try:
            found = json.loads(data)
            return str(found.get("token") or found["access_token"])
        except (ValueError, KeyError, AttributeError, RecursionError) as error:
            raise StorageError(f"{realm.netloc}: wanted a token as JSON, found something else") from error


def check_registry_address(host: str, *, resolve: Resolve = system_resolve) -> None:
    """Check a registry that a line names, before another program dials it.

    Raises:
        ConfigError: It leads where no request of a line goes.
        StorageError: It leads nowhere now.
    """
    checked_addresses(read_origin(_origin(host), key="env.base", named_by_site=False), resolve)


def _origin(host: str) -> str:
    return f"{'http' if is_loopback(host) else 'https'}://{_API_HOSTS.get(host, host)}"


def _client(origin: str, *, named_by_site: bool, resolve: Resolve) -> "HttpClient":
    try:
        from gangline.http.client import HttpClient, TimeLimits
        from gangline.http.connections import checked
    except ImportError as error:
        raise ConfigError(f"registries need urllib3, {error}; pip install 'gangline[s3]'") from error
    host = urlsplit(origin).hostname or ""
    return HttpClient(
        checked(host, named_by_site=named_by_site, resolve=resolve),
        limits=TimeLimits(connect_seconds=CONNECT_SECONDS, silence_seconds=READ_SECONDS),
    )
