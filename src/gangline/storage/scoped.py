"""A credential for one run: an hour at most, its own prefix to write, shared inputs to read, nothing else.

Servers with STS at their endpoint (MinIO) give one; for a folder, or a gateway without it, there is none, and the
caller says so.
"""

import json
import re
from typing import TYPE_CHECKING, Any

from gangline.errors import StorageError, UsageError
from gangline.storage.keys import check_key, check_prefix
from gangline.storage.protocol import ObjectStore
from gangline.storage.s3_names import NOTES

if TYPE_CHECKING:
    from gangline.storage.s3 import S3Store

MAX_SECONDS = 3600
MIN_SECONDS = 900
"""STS gives none for less."""
SHARED_INPUTS = ("blobs/", "models/")
_WRITE = ("s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload", "s3:ListMultipartUploadParts")
_UNKNOWN_THERE = (404, 405, 501)


def scoped_credentials(
    store: ObjectStore, run_prefix: str, *, read: tuple[str, ...] = SHARED_INPUTS, seconds: int = MAX_SECONDS
) -> str | None:
    """Ask the store's server for a credential of one run.

    Args:
        run_prefix: `runs/<project>/<commit>/<run>`; everything below may be read, written, listed and deleted.
        read: Prefixes that may also be read and listed.
        seconds: 900 to 3600; dead afterwards, whatever happened to the run.

    Returns:
        `ACCESS_KEY:SECRET_KEY:SESSION_TOKEN` for `open_store`; None where the server gives none.

    Raises:
        StorageError: The server did not answer, or refused this key.
    """
    if not MIN_SECONDS <= seconds <= MAX_SECONDS:
        raise UsageError(f"a run's credential lives {MIN_SECONDS} to {MAX_SECONDS} seconds, got {seconds}")
    if not store.url.startswith("s3:"):
        return None
    from gangline.storage.s3 import S3Store

    return _assume_role(store, policy(store, run_prefix, read), seconds) if isinstance(store, S3Store) else None


def policy(store: "S3Store", run_prefix: str, read: tuple[str, ...]) -> dict[str, Any]:
    """What the credential may do, as S3 policy document."""
    own = [store.prefix + check_key(run_prefix) + "/*", store.prefix + NOTES + run_prefix + "/*"]
    shared = [store.prefix + check_prefix(prefix) + "*" for prefix in read]
    bucket = f"arn:aws:s3:::{store.wire.place.bucket}"
    return {
        "Version": "2012-10-17",
        "Statement": [
            _allow(_WRITE, [f"{bucket}/{each}" for each in own]),
            _allow(("s3:GetObject",), [f"{bucket}/{each}" for each in (*own, *shared)]),
            # MinIO knows no condition for it, and lists the uploads of one exact key at a time.
            _allow(("s3:ListBucketMultipartUploads",), [bucket]),
            {**_allow(("s3:ListBucket",), [bucket]), "Condition": {"StringLike": {"s3:prefix": [*own, *shared]}}},
        ],
    }


def _allow(actions: tuple[str, ...], resources: list[str]) -> dict[str, Any]:
    return {"Effect": "Allow", "Action": list(actions), "Resource": resources}


def _assume_role(store: "S3Store", document: dict[str, Any], seconds: int) -> str | None:
    import urllib3
    from minio.credentials.providers import AssumeRoleProvider

    place, own = store.wire.place, store.wire.credentials
    provider = AssumeRoleProvider(
        sts_endpoint=place.endpoint,
        access_key=own.access_key,
        secret_key=own.secret_key,
        duration_seconds=seconds,
        policy=json.dumps(document, separators=(",", ":")),
        region=place.region,
        http_client=urllib3.PoolManager(retries=False, timeout=urllib3.Timeout(connect=5, read=30)),
    )
    try:
        given = provider.retrieve()
    except ValueError as error:  # minio's word for every status but success
        status = re.search(r"status code (\d+)", str(error))
        if status and int(status[1]) in _UNKNOWN_THERE:
            return None
        raise StorageError(
            f"store {place.url} at {place.endpoint}: a credential for one run was refused "
            f"({status[0] if status else 'unreadable answer'}); let this key call AssumeRole, "
            "or set store.scoped = false"
        ) from error
    except urllib3.exceptions.HTTPError as error:
        raise StorageError(
            f"store {place.url}: {place.endpoint} did not answer; is the server up and reachable from here?"
        ) from error
    return f"{given.access_key}:{given.secret_key}:{given.session_token}"
