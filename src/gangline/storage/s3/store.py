"""`S3Store`: a store in a bucket of any S3 server; `client` sends the requests, minio reads the bodies."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from datetime import timedelta
from email.utils import parsedate_to_datetime
from math import inf
from pathlib import Path

from gangline.errors import ConfigError, UsageError
from gangline.storage.objects.keys import check_key, check_prefix, is_key
from gangline.storage.objects.multipart import finishing
from gangline.storage.objects.protocol import Blob, Entry, Etag, OpenUpload, Upload

try:
    from minio import Minio

    from gangline.storage.s3.client import S3Client, S3Endpoint
    from gangline.storage.s3.credentials import CredentialSource, source_of
    from gangline.storage.s3.object_requests import S3Upload, etag_of, find_uploads, forget_notes, list_page, write
except ImportError as error:
    raise ConfigError("an s3:// store needs the package minio, which is not here; pip install gangline[s3]") from error

_PAGE = 1000


class S3Store:
    """ObjectStore below `prefix` of a bucket.

    Args:
        endpoint: With scheme, e.g. `https://minio.example:9000`.
        credentials: `ACCESS_KEY:SECRET_KEY[:SESSION_TOKEN]`, a file that holds it, or a source that renews it.
        deadline_seconds: Total time of one call, all its tries and waits together.
        connect_seconds: Time in which a connection must come about at all, the first time.
        socket_folder: Holds the socket to the server, in a sandbox; None: it is dialled.
    """

    def __init__(
        self,
        *,
        bucket: str,
        prefix: str,
        endpoint: str,
        region: str,
        credentials: str | Path | CredentialSource,
        url: str,
        deadline_seconds: float = 60.0,
        connect_seconds: float = inf,
        socket_folder: Path | None = None,
    ) -> None:
        place = S3Endpoint(url=url.partition("?")[0], endpoint=endpoint.rstrip("/"), bucket=bucket, region=region)
        self.url = url
        self.wire = S3Client(
            place,
            source_of(credentials),
            deadline_seconds=deadline_seconds,
            connect_seconds=connect_seconds,
            socket_folder=socket_folder,
        )
        self.prefix = f"{check_prefix(prefix)}/" if prefix else ""

    def get(self, key: str, start: int = 0, size: int | None = None) -> Blob | None:
        if start < 0 or (size is not None and size < 0):
            raise UsageError(f"a range starts at 0 or later and has 0 bytes or more, got start={start} size={size}")
        path = self._path(key)
        if size == 0:
            return self._nothing_of(path)
        headers = {"Range": f"bytes={start}-{'' if size is None else start + size - 1}"} if start or size else {}
        answer = self.wire.send("GET", path, headers=headers, accept=(404, 416))
        if answer.status == 404:
            return None
        if answer.status == 416:
            return self._nothing_of(path)
        whole = answer.headers.get("Content-Range", f"/{len(answer.data)}").rpartition("/")[2]
        return Blob(answer.data, etag_of(answer), int(whole))

    def head(self, key: str) -> Entry | None:
        answer = self.wire.send("HEAD", self._path(key), accept=(404,))
        if answer.status == 404:
            if not self.wire.is_proven:  # without a body it may as well mean the bucket or our access key
                self.wire.send("GET", self._path(key), headers={"Range": "bytes=0-0"}, accept=(404, 416))
            return None
        modified = parsedate_to_datetime(answer.headers["Last-Modified"]).timestamp()
        return Entry(key, int(answer.headers["Content-Length"]), modified)

    def put(self, key: str, data: bytes) -> Etag:
        etag = write(self.wire, self._path(key), data, {})
        assert etag is not None, "a write without condition has no second outcome"
        return etag

    def put_if_absent(self, key: str, data: bytes) -> Etag | None:
        return write(self.wire, self._path(key), data, {"If-None-Match": "*"})

    def compare_and_set(self, key: str, data: bytes, expected: Etag) -> Etag | None:
        return write(self.wire, self._path(key), data, {"If-Match": f'"{expected}"'})

    def list(self, prefix: str, after: str = "", limit: int = 1000) -> Sequence[Entry]:
        """List objects; those whose names are no keys are left out: no other method takes them."""
        check_prefix(prefix)
        entries: list[Entry] = []
        last = self.prefix + after if after else ""
        while len(entries) < limit and (page := list_page(self.wire, self.prefix + prefix, last, _PAGE)):
            entries += [
                Entry(entry.key.removeprefix(self.prefix), entry.size_bytes, entry.modified)
                for entry in page
                if is_key(entry.key.removeprefix(self.prefix))
            ]
            last = page[-1].key
        return entries[:limit]

    def delete(self, key: str) -> None:
        self.wire.send("DELETE", self._path(key), accept=(404,))

    def upload(self, key: str) -> AbstractContextManager[Upload]:
        return finishing(S3Upload(self.wire, self.prefix, check_key(key)))

    def open_uploads(self, prefix: str = "") -> Sequence[OpenUpload]:
        return find_uploads(self.wire, self.prefix, check_prefix(prefix))

    def abort_upload(self, upload: OpenUpload) -> None:
        path = self.prefix + upload.key  # as it was listed: it may have any name
        if upload.upload_id:
            self.wire.send("DELETE", path, query={"uploadId": upload.upload_id}, accept=(404,))
        forget_notes(self.wire, self.prefix, upload.key)

    def presign(self, key: str, seconds: float) -> str:
        place, credentials = self.wire.place, self.wire.credentials()
        scheme, _, host = place.endpoint.partition("://")
        client = Minio(
            endpoint=host,
            access_key=credentials.access_key,
            secret_key=credentials.secret_key,
            session_token=credentials.session_token,
            secure=scheme == "https",
            region=place.region,
        )
        return str(client.presigned_get_object(place.bucket, self._path(key), timedelta(seconds=seconds)))

    def _path(self, key: str) -> str:
        return self.prefix + check_key(key)

    def _nothing_of(self, path: str) -> Blob | None:
        answer = self.wire.send("HEAD", path, accept=(404,))
        return None if answer.status == 404 else Blob(b"", etag_of(answer), int(answer.headers["Content-Length"]))
