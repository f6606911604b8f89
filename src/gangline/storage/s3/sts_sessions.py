"""STS sessions (`AssumeRole`) at a store's own endpoint, as MinIO has it: temporary key, secret and token."""

import hashlib
import json
import xml.etree.ElementTree as ET
from typing import Any
from urllib.parse import urlencode, urlsplit

from minio.signer import sign_v4_sts
from minio.time import to_amz_date, utcnow

from gangline.errors import StorageError
from gangline.http.client import HttpResponse, TimeLimits
from gangline.http.retry import NotCarriedOut
from gangline.storage.s3.client import S3Client
from gangline.storage.s3.errors import error_code

_UNKNOWN_THERE = (404, 405, 501)
_BUSY = (429, 500, 502, 503, 504)
"""The request may be repeated: a second session is harmless and expires."""
_LIMITS = TimeLimits(connect_seconds=5, silence_seconds=30)
_PARTS = ("AccessKeyId", "SecretAccessKey", "SessionToken")


def assume(wire: S3Client, policy: dict[str, Any], *, seconds: int) -> str | None:
    """`ACCESS_KEY:SECRET_KEY:SESSION_TOKEN` that may do what `policy` says; None: the server has no STS.

    minio's own provider requests an hour where less is wanted.

    Raises:
        StorageError: The server did not answer, or refused this key.
    """
    request = {"Action": "AssumeRole", "Version": "2011-06-15", "DurationSeconds": str(seconds)}
    body = urlencode(request | {"Policy": json.dumps(policy, separators=(",", ":"))})
    answer = wire.retrying("a request for a session", lambda: _send(wire, body))
    if answer.status in _UNKNOWN_THERE:
        return None
    if answer.status == 200 and (found := _session(answer.data)):
        return found
    reason = f"{answer.status} {error_code(answer)}" if answer.status != 200 else "an unreadable answer"
    raise StorageError(
        f"store {wire.place.url} at {wire.place.endpoint}: a credential for one run was refused ({reason.strip()}); "
        "let this key call AssumeRole, or set store.scoped = false"
    )


def _send(wire: S3Client, body: str) -> HttpResponse:
    place, url, now = wire.place, urlsplit(wire.place.endpoint), utcnow()
    signed = sign_v4_sts(
        method="POST",
        url=url,
        region=place.region,
        headers={
            "Content-Type": "application/x-www-form-urlencoded",
            "Host": url.netloc,
            "X-Amz-Date": to_amz_date(now),
        },
        credentials=wire.credentials(),
        content_sha256=hashlib.sha256(body.encode()).hexdigest(),
        date=now,
    )
    answer = wire.http.request(
        "POST", place.endpoint, headers={name: str(value) for name, value in signed.items()}, body=body.encode(),
        limits=_LIMITS,
    )  # fmt: skip
    if answer.status in _BUSY:
        raise NotCarriedOut(str(answer.status))
    return answer


def _session(document: bytes) -> str | None:
    try:
        root = ET.fromstring(document)  # noqa: S314  # expat expands nothing from outside
    except ET.ParseError:
        return None
    parts = [root.findtext(f".//{{*}}{name}") for name in _PARTS]
    return ":".join(part for part in parts if part) if all(parts) else None
