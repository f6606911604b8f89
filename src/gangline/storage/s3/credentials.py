"""Access keys as their text says, from a value or from a file whose text may change while a store is open.

A file that another one replaced by rename counts at once. One that is written in place may be seen half-written: it
counts once it was left alone for `SETTLE_SECONDS`, and what was read before counts until then. So does it while the
file is missing or holds no credential.
"""

import time
from pathlib import Path
from typing import NamedTuple, Protocol

from minio.credentials.credentials import Credentials

from gangline.errors import ConfigError

SETTLE_SECONDS = 0.5
"""Pause after the last write to a file that is not replaced but rewritten."""


class CredentialSource(Protocol):
    """Where the credential of a request comes from."""

    def current(self) -> Credentials:
        """One credential, whole; it never changes."""
        ...

    def another(self, refused: Credentials, /) -> Credentials | None:
        """A different one than `refused`, which the server did not accept; None: there is none."""
        ...


def source_of(given: str | Path | CredentialSource) -> CredentialSource:
    """Source for `ACCESS_KEY:SECRET_KEY[:SESSION_TOKEN]`, for a file that holds it, or what is one already.

    Raises:
        ConfigError: The text does not look like that, or the file cannot be read.
    """
    if isinstance(given, Path):
        return _File(given)
    return _Fixed(parse_credentials(given)) if isinstance(given, str) else given


def credential_text(credentials: Credentials) -> str:
    """The text that `parse_credentials` reads."""
    parts = (credentials.access_key, credentials.secret_key, credentials.session_token)
    return ":".join(part for part in parts if part)


def parse_credentials(text: str) -> Credentials:
    """Raises ConfigError where `text` is not `ACCESS_KEY:SECRET_KEY[:SESSION_TOKEN]`."""
    line = text.strip()
    access_key, _, rest = line.partition(":")
    secret_key, _, session_token = rest.partition(":")
    if not access_key or not secret_key:
        raise ConfigError("store.credentials: wanted ACCESS_KEY:SECRET_KEY[:SESSION_TOKEN], found no ':' in it")
    if not (line.isascii() and line.isprintable()) or " " in line:
        raise ConfigError("store.credentials: wanted one line of ASCII without spaces, found other characters in it")
    return Credentials(access_key, secret_key, session_token or None)


class _Fixed:
    def __init__(self, found: Credentials) -> None:
        self._found = found

    def current(self) -> Credentials:
        return self._found

    def another(self, _refused: Credentials, /) -> Credentials | None:
        """None: a value never changes."""
        return None


class _Mark(NamedTuple):
    """Changes with every write to a file, and with every other file of its name."""

    inode: int
    modified_ns: int
    size_bytes: int


class _Seen(NamedTuple):
    mark: _Mark
    found: Credentials


class _File:
    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._seen = self._read()
        except OSError as error:
            raise ConfigError(f"wanted the store's credentials in {path}, found: {error.strerror}") from error

    def current(self) -> Credentials:
        try:
            mark = self._mark()
            if mark != self._seen.mark and not self._may_be_half_written(mark):
                self._seen = self._read()
        except (OSError, ConfigError):
            pass  # what was read before counts
        return self._seen.found

    def another(self, refused: Credentials, /) -> Credentials | None:
        """Read the file now, or once it is no longer being written."""
        try:
            if self._may_be_half_written(self._mark()):
                time.sleep(SETTLE_SECONDS)
            self._seen = self._read()
        except (OSError, ConfigError):
            pass
        found = self._seen.found
        return found if credential_text(found) != credential_text(refused) else None

    def _may_be_half_written(self, mark: _Mark) -> bool:
        return mark.inode == self._seen.mark.inode and time.time() - mark.modified_ns / 1e9 < SETTLE_SECONDS

    def _read(self) -> _Seen:
        mark = self._mark()
        return _Seen(mark, parse_credentials(self._path.read_text("utf-8", errors="replace")))

    def _mark(self) -> _Mark:
        status = self._path.stat()
        return _Mark(status.st_ino, status.st_mtime_ns, status.st_size)
