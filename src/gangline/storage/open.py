"""Opens the store that a URL names. Imports no client before one is needed: this module loads in milliseconds."""

from math import inf
from pathlib import Path
from typing import TYPE_CHECKING

from gangline.errors import ConfigError
from gangline.spec.config.grammar import STORE_FORMS
from gangline.storage.folder.store import FolderStore
from gangline.storage.objects.protocol import ObjectStore

if TYPE_CHECKING:
    from gangline.storage.s3.credentials import CredentialSource

_FORMS = f"use {STORE_FORMS}"


def open_store(
    url: str,
    *,
    endpoint: str | None = None,
    region: str | None = None,
    credentials: "str | Path | CredentialSource | None" = None,
    deadline_seconds: float = 60.0,
    connect_seconds: float = inf,
    socket_folder: Path | None = None,
) -> ObjectStore:
    """Open `file:PATH` or `s3://bucket/prefix`; the store's own `url` opens it again, from any folder.

    Args:
        url: May carry endpoint and region as `?endpoint=https://host:9000&region=eu-1`; arguments win.
        endpoint: Of an S3 server, with its scheme.
        credentials: `ACCESS_KEY:SECRET_KEY`, with `:SESSION_TOKEN` where they are temporary; never in the URL.
            A path: the file that holds it, read again when it changes. A source: asked before each request.
        deadline_seconds: Of one call to a server, all its tries together.
        connect_seconds: Shorter, for a server that no connection came about to yet; for people who wait.
        socket_folder: Holds the socket to an S3 server, in a sandbox without network; None: it is dialled.

    Raises:
        ConfigError: Unknown scheme, S3 without endpoint or credentials, or its client is not installed.
    """
    scheme, _, rest = url.partition(":")
    if scheme == "file":
        return _open_folder(url, rest)
    if scheme == "s3":
        return _open_s3(
            url,
            endpoint,
            region,
            credentials=credentials,
            deadline_seconds=deadline_seconds,
            connect_seconds=connect_seconds,
            socket_folder=socket_folder,
        )
    raise ConfigError(f"store.url {url!r}: unknown scheme {scheme!r}; {_FORMS}")


def _open_folder(url: str, path: str) -> ObjectStore:
    if path.startswith("//"):
        path = path.removeprefix("//").removeprefix("localhost")
    if not path or "?" in path:
        raise ConfigError(f"store.url {url!r} names no folder; {_FORMS}")
    return FolderStore(path)


def _open_s3(
    url: str,
    endpoint: str | None,
    region: str | None,
    *,
    credentials: "str | Path | CredentialSource | None",
    deadline_seconds: float,
    connect_seconds: float,
    socket_folder: Path | None,
) -> ObjectStore:
    from urllib.parse import parse_qsl, urlencode, urlsplit

    from gangline.storage.s3.store import S3Store

    parts = urlsplit(url)
    if "@" in parts.netloc:
        raise ConfigError("store.url holds credentials; use store.credentials with a reference to a secret")
    query = dict(parse_qsl(parts.query))
    endpoint = endpoint or query.get("endpoint")
    region = region or query.get("region") or "us-east-1"
    if not parts.netloc:
        raise ConfigError(f"store.url {url!r} names no bucket; {_FORMS}")
    if not endpoint or not endpoint.startswith(("http://", "https://")):
        raise ConfigError(
            f"store.url {url!r}: wanted store.endpoint with its scheme, e.g. https://minio.example:9000, "
            f"found {endpoint!r}"
        )
    if (urlsplit(endpoint).hostname or "").startswith(f"{parts.netloc}.s3"):  # a server may have a bucket's name
        works = endpoint.replace(f"{parts.netloc}.", "", 1)
        raise ConfigError(f"store.endpoint: wanted a server, found {endpoint}, which names the bucket; {works} works")
    if not credentials:
        raise ConfigError(
            f"store.url {url!r} needs credentials; set store.credentials, e.g. secret:env:STORE_KEY or aws:role"
        )
    return S3Store(
        bucket=parts.netloc,
        prefix=parts.path.strip("/"),
        endpoint=endpoint,
        region=region,
        credentials=credentials,
        deadline_seconds=deadline_seconds,
        connect_seconds=connect_seconds,
        socket_folder=socket_folder,
        url=f"s3://{parts.netloc}{parts.path.rstrip('/')}?" + urlencode({"endpoint": endpoint, "region": region}),
    )
