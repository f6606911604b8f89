"""Access keys as their text says, from a value or from a file whose text may change while a store is open."""

from collections.abc import Callable
from pathlib import Path

from minio.credentials.credentials import Credentials

from gangline.errors import ConfigError

Source = Callable[[], Credentials]
"""Asked before each request."""


def source_of(given: str | Path) -> Source:
    """Of `ACCESS_KEY:SECRET_KEY[:SESSION_TOKEN]`, or of a file that holds it.

    Raises:
        ConfigError: The text does not look like that, or the file cannot be read.
    """
    if isinstance(given, Path):
        return _File(given)
    fixed = _parsed(given)
    return lambda: fixed


class _File:
    """Reads its file again when another one has its name; one that is gone or half a credential changes nothing."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._seen = self._mark()
            self._found = _parsed(path.read_text("utf-8"))
        except OSError as error:
            raise ConfigError(f"wanted the store's credentials in {path}, found: {error.strerror}") from error

    def __call__(self) -> Credentials:
        try:
            mark = self._mark()
            if mark != self._seen:
                self._found, self._seen = _parsed(self._path.read_text("utf-8")), mark
        except (OSError, ConfigError):
            return self._found
        return self._found

    def _mark(self) -> tuple[int, int]:
        found = self._path.stat()
        return found.st_ino, found.st_mtime_ns


def _parsed(text: str) -> Credentials:
    access_key, _, rest = text.strip().partition(":")
    secret_key, _, session_token = rest.partition(":")
    if not access_key or not secret_key:
        raise ConfigError("store.credentials: wanted ACCESS_KEY:SECRET_KEY[:SESSION_TOKEN], found no ':' in it")
    return Credentials(access_key, secret_key, session_token or None)
