"""Browser sessions: a signed cookie that names a token's digest, and one-time login links.

No session is stored: the cookie holds digest, expiry, a random word and a MAC, so sessions survive a restart, and
revoking a token ends its sessions.
"""

import hmac
import os
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from hashlib import sha256
from pathlib import Path
from urllib.parse import parse_qs

from gangline.errors import ConfigError, storage_errors
from gangline.serve.web.responses import RequestRefused

SESSION_SECONDS = 12 * 3600.0
LINK_SECONDS = 600.0
MAX_FIELDS = 50
KEY_BYTES = 32


class Sessions:
    """Cookies of one service.

    Args:
        key: Of the MAC, 32 bytes.
        secure: The service is reached over TLS.
        port: Part of the cookie's name: browsers share cookies among the ports of a host.
    """

    def __init__(self, key: bytes, *, secure: bool, port: int, clock: Callable[[], float] = time.time) -> None:
        self._key, self._secure, self._clock = key, secure, clock
        self._ended: dict[str, float] = {}
        """Cookies that were logged out, by MAC, and when they would have ended; a restart forgets them."""
        self.cookie = f"{'__Host-' if secure else ''}gangline-{port}"

    def begin(self, digest: str) -> str:
        """Set-Cookie header after the token of `digest` was shown."""
        value = f"{digest}.{int(self._clock() + SESSION_SECONDS)}.{secrets.token_hex(4)}"
        return self._set_cookie(f"{value}.{self._mac('session', value)}", int(SESSION_SECONDS))

    def end(self, cookie: str) -> str:
        """Set-Cookie header that forgets the session; a copy of the cookie is refused, too."""
        if self.digest_in(cookie) is not None:
            now = self._clock()
            alive = {mac: ends for mac, ends in self._ended.items() if ends > now}
            self._ended = alive | {cookie.rpartition(".")[2]: now + SESSION_SECONDS}
        return self._set_cookie("", 0)

    def digest_in(self, cookie: str) -> str | None:
        """Digest of the token behind a cookie of ours that has not ended."""
        value, _, mac = cookie.rpartition(".")
        if not hmac.compare_digest(mac.encode(), self._mac("session", value).encode()):
            return None
        digest, ends, *_ = value.split(".")
        return digest if float(ends) > self._clock() and mac not in self._ended else None

    def csrf(self, cookie: str) -> str:
        """Token that the forms of this session contain."""
        return self._mac("form", cookie)

    def has_csrf_token(self, cookie: str, body: bytes) -> bool:
        """Whether the body of a form contains the session's token."""
        given = form_of(body).get("csrf", "")
        return hmac.compare_digest(given.encode("utf-8", "surrogatepass"), self.csrf(cookie).encode())

    def _mac(self, use: str, value: str) -> str:
        return hmac.new(self._key, f"{use}:{value}".encode("utf-8", "surrogatepass"), sha256).hexdigest()

    def _set_cookie(self, value: str, seconds: int) -> str:
        tail = "; Secure" if self._secure else ""
        return f"{self.cookie}={value}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict{tail}"


class LoginLinks:
    """Links that log in once, within ten minutes."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._codes: dict[str, tuple[str, float]] = {}
        self._lock = threading.Lock()

    def make(self, digest: str) -> str:
        """A code for the token of `digest`."""
        code = secrets.token_urlsafe(24)
        with self._lock:
            self._codes[sha256(code.encode()).hexdigest()] = (digest, self._clock() + LINK_SECONDS)
        return code

    def use(self, code: str) -> str | None:
        """Digest of its token, the first time."""
        with self._lock:
            found = self._codes.pop(sha256(code.encode("utf-8", "surrogatepass")).hexdigest(), None)
        return found[0] if found and found[1] > self._clock() else None


def form_of(body: bytes) -> Mapping[str, str]:
    """Fields of a form as browsers send it; of several of one name the first."""
    try:
        fields = parse_qs(body.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=MAX_FIELDS)
    except ValueError as error:
        raise RequestRefused(422, f"wanted a form of at most {MAX_FIELDS} fields") from error
    return {name: values[0] for name, values in fields.items()}


def load_or_create_key(path: Path) -> bytes:
    """The key in a file that is closed to others; made the first time."""
    with storage_errors(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not path.exists():
            fresh = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
            with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(secrets.token_bytes(KEY_BYTES))
            fresh.rename(path)
        key = path.read_bytes()
        if len(key) != KEY_BYTES or path.stat().st_mode & 0o077:
            raise ConfigError(f"{path}: wanted 32 bytes closed to others; delete it, then all log in again")
        return key
