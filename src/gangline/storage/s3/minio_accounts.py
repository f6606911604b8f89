"""Access keys of one run on a MinIO server: made by its admin API, found again by their description, deleted.

A key that may use the store may make, list and delete access keys below itself; no further right is needed. Deleting
one reaches every node of the server at once, which ending a session (`revoke-tokens`) does not.
"""

import json
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from secrets import token_hex
from typing import Any, TypeVar
from urllib.parse import urlsplit

from minio.credentials.providers import StaticProvider
from minio.error import MinioAdminException
from minio.minioadmin import MinioAdmin

from gangline.http.client import HttpClient, TimeLimits, library_failures
from gangline.http.retry import OutcomeUnknown
from gangline.storage.s3.client import S3Client

Result = TypeVar("Result")
_NAME = "gangline"
_HEAD = "gangline "
"""Text before the owner, in the description: keys of others are never touched."""
_MOST_DESCRIPTION = 256
_LIMITS = TimeLimits(connect_seconds=5, silence_seconds=30)


class AccountsUnavailable(Exception):
    """The server has no access keys of MinIO, or the store's key may not handle them; the text says which."""


def add(wire: S3Client, policy: dict[str, Any], *, owner: str, seconds: int) -> str:
    """Make an access key that may do what `policy` says; `ACCESS_KEY:SECRET_KEY`.

    Raises:
        AccountsUnavailable: The server gives none.
        StorageError: The server did not answer.
    """
    expired = [account["accessKey"] for account in _accounts(wire, owner) if account["is_over"]]
    made = _asked(wire, lambda admin: _add_once(admin, policy, owner=owner, seconds=seconds))
    for access_key in expired:
        _delete(wire, access_key)
    return made


def _add_once(admin: MinioAdmin, policy: dict[str, Any], *, owner: str, seconds: int) -> str:
    """Add an account under a new name at each try: one whose answer was lost goes with the others of its owner."""
    access_key, secret_key = _NAME + token_hex(6), token_hex(20)
    ends = datetime.now(UTC) + timedelta(seconds=seconds)
    admin.add_service_account(
        access_key=access_key,
        secret_key=secret_key,
        name=_NAME,
        description=_description(owner),
        policy=policy,
        expiration=ends.strftime("%Y-%m-%dT%H:%M:%SZ"),
    )
    return f"{access_key}:{secret_key}"


def delete(wire: S3Client, *, owner: str) -> int:
    """Delete every access key of `owner`; how many."""
    doomed = [account["accessKey"] for account in _accounts(wire, owner)]
    for access_key in doomed:
        _delete(wire, access_key)
    return len(doomed)


def owners(wire: S3Client) -> set[str]:
    """Owners that have an access key."""
    return {account["description"].removeprefix(_HEAD) for account in _accounts(wire)}


def probe(wire: S3Client, *, owner: str) -> None:
    """Make one that may do nothing, and delete it. Raises as `add` does."""
    add(wire, {"Version": "2012-10-17", "Statement": [_NOTHING]}, owner=owner, seconds=3600)
    delete(wire, owner=owner)


_NOTHING = {"Effect": "Deny", "Action": ["s3:*"], "Resource": ["arn:aws:s3:::*"]}


def _accounts(wire: S3Client, owner: str | None = None) -> list[dict[str, Any]]:
    """Ours below the store's key, with whether they ended; of one owner or of all."""
    text = _asked(wire, lambda admin: admin.list_service_account(""))
    return [each for each in _read(text) if owner is None or each["description"] == _description(owner)]


def _read(text: str) -> Iterator[dict[str, Any]]:
    try:
        listed = json.loads(text).get("accounts") or []
    except (ValueError, AttributeError) as error:
        raise AccountsUnavailable(f"the server's list of access keys cannot be read ({error})") from error
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    for each in listed:
        if str(each.get("description", "")).startswith(_HEAD):
            yield {**each, "is_over": "1971" < str(each.get("expiration", "")) < now}


def _delete(wire: S3Client, access_key: str) -> None:
    try:
        _asked(wire, lambda admin: admin.delete_service_account(access_key))
    except AccountsUnavailable:  # it is gone: it expired, or another process deleted it
        if any(account["accessKey"] == access_key for account in _accounts(wire)):
            raise


def _description(owner: str) -> str:
    text = _HEAD + owner
    return text if len(text) <= _MOST_DESCRIPTION else _HEAD + sha256(owner.encode()).hexdigest()


def _admin(wire: S3Client) -> MinioAdmin:
    place, own = urlsplit(wire.place.endpoint), wire.credentials()
    return MinioAdmin(
        endpoint=place.netloc,
        credentials=StaticProvider(own.access_key, own.secret_key, own.session_token),
        region=wire.place.region,
        secure=place.scheme == "https",
        http_client=HttpClient(limits=_LIMITS).pool,  # its own: MinioAdmin closes it at its end
    )


def _asked(wire: S3Client, call: Callable[[MinioAdmin], Result]) -> Result:
    admin = _admin(wire)

    def attempt() -> Result:
        try:
            with library_failures():
                return call(admin)
        except MinioAdminException as error:
            raise _meaning(error) from error
        except ValueError as error:  # not encrypted by our secret: no MinIO
            raise AccountsUnavailable("the server has no access keys of MinIO") from error

    return wire.retrying("a request about access keys of a run", attempt)


def _meaning(error: MinioAdminException) -> Exception:
    match = re.search(r"Status: (\d+)", str(error))
    status = int(match[1]) if match else 0
    if status in (429, 503) or (status >= 500 and status != 501):
        return OutcomeUnknown(str(status))
    if status == 403:
        return AccountsUnavailable("the store's key may not handle access keys of its own")
    return AccountsUnavailable("the server has no access keys of MinIO")
