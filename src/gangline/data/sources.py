"""Sources: stores of data that are not gangline's own, only ever read. fsspec reads them; `s3:` is our own client.

Paths stay below the URL of a source: names with `..` are refused, and so are links that lead out of a folder. Requests
to WebHDFS and web servers, redirected ones included, are held against the hosts that the site names before they are
sent: the `data_proxy` of fsspec sees the first redirect alone. Our client of S3 follows no redirect.
"""

import os
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import takewhile
from pathlib import Path
from stat import S_ISREG
from typing import Any, Protocol, TypeVar
from urllib.parse import quote, urljoin, urlsplit

from gangline.errors import ConfigError, GanglineError, IntegrityError, NotInstalledError, StorageError
from gangline.http.retry import Deadline, NoAnswer, retry
from gangline.sanitize import conceal, concealable
from gangline.spec.config.secrets import resolve_secret
from gangline.spec.config.site_tables import SourceTable
from gangline.spec.globs import is_inside, matches
from gangline.storage.folder.safe_paths import kind_of
from gangline.storage.objects.errors import PermissionDenied
from gangline.storage.objects.protocol import ObjectStore, list_all
from gangline.storage.open import open_store

T = TypeVar("T")
BLOCK_BYTES = 64 << 20
"""Size of one request; each is tried again on its own."""
MOST_FILES = 100_000
_TIMEOUT_SECONDS = (10.0, 60.0)
"""Limits on a connection, and on a silent server; fsspec has none for WebHDFS."""
_WILD = frozenset("*?[")


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file of a source."""

    path: str
    """Path below the URL of the source."""
    size_bytes: int


class Source(Protocol):
    """Files by path; all methods raise StorageError (40) where the source fails for a minute, or lacks the file."""

    name: str

    def find(self, pattern: str) -> list[SourceFile]:
        """Files whose paths match a glob, sorted; none: an empty list."""
        ...

    def read(self, path: str, start: int, length: int) -> bytes:
        """Bytes of a file from `start`; fewer only at its end."""
        ...

    def blocks(self, path: str) -> Iterator[bytes]:
        """All bytes of a file, in pieces of `BLOCK_BYTES` at most."""
        ...


def open_source(name: str, table: SourceTable, environ: Mapping[str, str], *, deadline_seconds: float = 60.0) -> Source:
    """Open `[source.NAME]`; nothing is read yet.

    Raises:
        ConfigError: Its secret is not there, or the package that its scheme needs is not installed.
    """
    secret = resolve_secret(table.credentials, environ) if table.credentials else None
    scheme = urlsplit(table.url).scheme
    if scheme == "s3":
        with _says_source(name):
            return _StoreSource(name, open_store(table.url, credentials=secret, deadline_seconds=deadline_seconds))
    try:
        from fsspec.core import url_to_fs

        options = _options(scheme, secret) if scheme not in ("http", "https") else _web_options(name, table, secret)
        url = table.url.removeprefix("s") if scheme == "swebhdfs" else table.url
        filesystem, root = url_to_fs(url, skip_instance_cache=True, **options)
    except ImportError as error:
        raise NotInstalledError(
            f"source.{name}: {scheme}: wanted its package, found none ({error}); install gangline[data] and that"
        ) from error
    except ValueError as error:
        raise ConfigError(f"source.{name}.url: wanted a scheme that fsspec knows, found {scheme} ({error})") from error
    if scheme in ("webhdfs", "swebhdfs"):
        _hold_to_hosts(filesystem.session, name, table)
    secrets = concealable(each for word in (secret or "").split(":", 1) for each in (word, quote(word, safe="")))
    return _FsspecSource(name, filesystem, str(root).rstrip("/"), deadline_seconds, secrets)


def _options(scheme: str, secret: str | None) -> dict[str, Any]:
    """Arguments of the filesystem: `USER:PASSWORD` or a token, under the names of its scheme."""
    options: dict[str, Any] = {"use_https": True} if scheme == "swebhdfs" else {}
    if secret is None:
        return options
    user, colon, password = secret.partition(":")
    if not colon:
        return options | {"token": secret}
    return options | {"user" if scheme.endswith("webhdfs") else "username": user, "password": password}


def _web_options(name: str, table: SourceTable, secret: str | None) -> dict[str, Any]:
    """Arguments for a web server: its login, and a session that asks the hosts of the site alone."""
    import aiohttp

    async def hold(_: object, __: object, redirect: Any) -> None:
        _require_host(name, table, urljoin(str(redirect.url), redirect.response.headers.get("Location", "")))

    trace = aiohttp.TraceConfig()
    trace.on_request_redirect.append(hold)
    connect, silence = _TIMEOUT_SECONDS
    limits = aiohttp.ClientTimeout(total=None, sock_connect=connect, sock_read=silence)
    session: dict[str, Any] = {"trace_configs": [trace], "timeout": limits}
    if secret is not None:
        login = f"Basic {b64encode(secret.encode()).decode()}" if ":" in secret else f"Bearer {secret}"
        session["headers"] = {"Authorization": login}  # aiohttp gives it to no other host
    return {"client_kwargs": session}


def address_of(url: str) -> str:
    """`host:port` of an http or WebHDFS URL."""
    parts = urlsplit(url)
    port = parts.port or {"https": 443, "http": 80, "webhdfs": 50070, "swebhdfs": 50070}.get(parts.scheme, 0)
    return f"{parts.hostname}:{port}"


def _require_host(name: str, table: SourceTable, url: str) -> bool:
    """Whether a request goes to the source's own host; raises IntegrityError for one that the site does not name."""
    own, host = address_of(table.url), address_of(url)
    if host != own and not any(fnmatchcase(host, each) for each in table.hosts):
        wanted = ", ".join((own, *table.hosts))
        raise IntegrityError(
            f"source.{name}: wanted one of {wanted}, found a redirect to {host}, and nothing was read; if it is"
            f" a server of this source, source.{name}.hosts in site.toml takes it"
        )
    return host == own


def _hold_to_hosts(session: Any, name: str, table: SourceTable) -> None:
    """Let the session of a WebHDFS filesystem speak to the hosts of the site alone, with a time limit.

    It reads neither proxies nor passwords from this user's files. An answer of a DataNode that is an error is raised:
    fsspec would take its text for bytes of the file.
    """
    send = session.send
    session.trust_env = False

    def checked(request: Any, **options: Any) -> Any:
        is_own = _require_host(name, table, request.url)
        answer = send(request, **options | {"timeout": _TIMEOUT_SECONDS})
        if not is_own:
            answer.raise_for_status()
        return answer

    session.send = checked


def _inside(name: str, path: str) -> str:
    if not is_inside(path):
        raise IntegrityError(f"source.{name}: wanted a path below its URL, found {path[:90]!r}")
    return path


class _FsspecSource:
    """Any filesystem of fsspec."""

    def __init__(
        self, name: str, filesystem: Any, root: str, deadline_seconds: float, secrets: tuple[str, ...]
    ) -> None:
        self.name = name
        self._files = filesystem
        self._root = root
        self._seconds = deadline_seconds
        self._secrets = secrets

    def find(self, pattern: str) -> list[SourceFile]:
        parts = _inside(self.name, pattern).split("/")
        fixed = list(takewhile(lambda part: not _WILD & set(part), parts))
        try:
            if len(fixed) == len(parts):
                return [SourceFile(pattern, self._size(pattern))]
            below = "/".join((self._root, *fixed))
            found = self._ask("list", pattern, lambda: self._files.find(below, detail=True, on_error="raise"))
        except _NoSuchFile:
            return []
        entries = {_inside(self.name, place.removeprefix(f"{self._root}/")): info for place, info in found.items()}
        files = [
            SourceFile(path, int(info["size"] if info["size"] is not None else self._size(path)))
            for path, info in entries.items() if info["type"] == "file"
        ]  # fmt: skip
        matched = sorted((file for file in files if matches(file.path, pattern)), key=lambda file: file.path)
        if len(matched) > MOST_FILES:
            raise ConfigError(
                f"source.{self.name}: {pattern}: wanted at most {MOST_FILES} files, found {len(matched)}; narrow it"
            )
        return matched

    def read(self, path: str, start: int, length: int) -> bytes:
        return self._ask("read", path, lambda: self._read_once(self._place(path), start, length))

    def blocks(self, path: str) -> Iterator[bytes]:
        for start in range(0, self._size(path), BLOCK_BYTES):
            yield self.read(path, start, BLOCK_BYTES)

    def _size(self, path: str) -> int:
        info = self._ask("look up", path, lambda: self._files.info(self._place(path)))
        if info["type"] != "file" or info.get("size") is None:
            raise StorageError(f"source.{self.name}: wanted a file with a size, found {path}, a {info['type']}")
        return int(info["size"])

    def _read_once(self, place: str, start: int, length: int) -> bytes:
        with self._files.open(place, "rb", block_size=1) as file:  # it reads one block more than it is asked for
            file.seek(start)
            data = bytes(file.read(length))
            size = getattr(file, "size", None)
        if size is not None and len(data) != max(min(length, size - start), 0):
            raise EOFError(f"wanted {min(length, size - start)} bytes, {len(data)} came")
        return data

    def _place(self, path: str) -> str:
        place = f"{self._root}/{_inside(self.name, path)}"
        if self._files.protocol[0] == "file":
            real = os.path.realpath(place)
            if not real.startswith(f"{os.path.realpath(self._root)}/"):
                raise IntegrityError(
                    f"source.{self.name}: wanted files below its folder, found {path}, a link out of it"
                )
            mode = Path(real).stat().st_mode
            if not S_ISREG(mode):  # a pipe would stop whoever opens it
                raise StorageError(f"source.{self.name}: wanted the file {path}, found {kind_of(mode)}")
        return place

    def _ask(self, action: str, path: str, attempt: Callable[[], T]) -> T:
        """Retry `attempt` until it answers or the deadline passes."""
        failed = f"source.{self.name}: cannot {action} {path}"

        def once() -> T:
            try:
                return attempt()
            except GanglineError:
                raise
            except Exception as error:  # each library of a scheme has errors of its own
                raise self._failure(failed, path, error) from None

        deadline = Deadline(self._seconds)
        try:
            return retry(once, deadline=deadline)
        except NoAnswer as error:
            said = f"{failed} for {deadline.elapsed_seconds():.0f} s: {error}"
            raise StorageError(f"{said}; it goes on once the source answers") from error

    def _failure(self, failed: str, path: str, error: BaseException) -> Exception:
        """What an error of fsspec means: no such file, no right to it, or no answer, which is worth another try."""
        if isinstance(error, FileNotFoundError) and error.__cause__ is not None:
            error = error.__cause__  # of a web server: whatever was no good answer
        status = getattr(error, "status", None)
        wants_login = getattr(getattr(error, "response", None), "status_code", None) == 401  # of WebHDFS
        if isinstance(error, GanglineError):
            return error
        if isinstance(error, (FileNotFoundError, NotADirectoryError, IsADirectoryError)) or status in (404, 410):
            return _NoSuchFile(f"source.{self.name}: wanted the file {path}, found none; was it deleted?")
        said = conceal(" ".join(str(error).split()), self._secrets)[:300] or type(error).__name__
        if isinstance(error, PermissionError) or wants_login or status in (401, 403):
            return PermissionDenied(f"{failed}: {said}; source.{self.name}.credentials names who may")
        return NoAnswer(said)


@contextmanager
def _says_source(name: str) -> Iterator[None]:
    """Errors of a store in the block are those of a source, whose keys have other names."""
    try:
        yield
    except GanglineError as error:
        raise type(error)(f"source.{name}: {error}; store.credentials is source.{name}.credentials here") from error


class _StoreSource:
    """An S3 bucket, by the client of our stores."""

    def __init__(self, name: str, store: ObjectStore) -> None:
        self.name = name
        self._store = store

    def find(self, pattern: str) -> list[SourceFile]:
        parts = _inside(self.name, pattern).split("/")
        fixed = "/".join(takewhile(lambda part: not _WILD & set(part), parts))
        with _says_source(self.name):
            if fixed == pattern:
                entry = self._store.head(pattern)
                return [SourceFile(pattern, entry.size_bytes)] if entry else []
            entries = list_all(self._store, f"{fixed}/" if fixed else "")
            return [SourceFile(each.key, each.size_bytes) for each in entries if matches(each.key, pattern)]

    def read(self, path: str, start: int, length: int) -> bytes:
        with _says_source(self.name):
            blob = self._store.get(_inside(self.name, path), start, length)
        if blob is None:
            raise _NoSuchFile(f"source.{self.name}: wanted the file {path}, found none; was it deleted?")
        return blob.data

    def blocks(self, path: str) -> Iterator[bytes]:
        with _says_source(self.name):
            entry = self._store.head(_inside(self.name, path))
        for start in range(0, entry.size_bytes if entry else 1, BLOCK_BYTES):
            yield self.read(path, start, BLOCK_BYTES)


class _NoSuchFile(StorageError):
    """A file is not there; another try does not help."""
