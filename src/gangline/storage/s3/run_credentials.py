"""Credentials of one run for its gangs: they write below one prefix, read what is named, and end with the run.

Three kinds, by what the server can do:

    access key   MinIO: of the run alone, deleted when the run ends
    session      STS at the store's endpoint, MinIO's way: cannot be revoked, so it lasts as short as STS allows
    none         a folder, or a gateway without either: there is none, and the caller says so
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from gangline.errors import StorageError, UsageError
from gangline.storage.objects.keys import check_key, check_prefix
from gangline.storage.objects.protocol import ObjectStore
from gangline.storage.s3.names import UPLOAD_NOTES_PREFIX

if TYPE_CHECKING:
    from gangline.storage.s3.store import S3Store

ACCOUNT_SECONDS = 3600
"""Lifetime of an access key, which a crashed driver neither renews nor revokes."""
SESSION_SECONDS = 900
"""Shortest lifetime of a session that STS issues."""
SHARED_INPUTS = ("blobs/",)
"""Readable by name, which is a digest, and never listed."""
_WRITE = ("s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload")
_NOTE = ("s3:PutObject", "s3:DeleteObject")
_PROBED = "runs/probe"


@dataclass(frozen=True, kw_only=True, slots=True)
class RunCredential:
    """A credential that a server issued."""

    text: str
    """`ACCESS_KEY:SECRET_KEY[:SESSION_TOKEN]`, for `open_store`."""
    kind: Literal["access key", "session"]


@dataclass(frozen=True, kw_only=True, slots=True)
class CredentialPolicy:
    """Kind of credentials that a server issues, and how long they remain valid after their run."""

    kind: Literal["access key", "session", "none"]
    outlives_seconds: int
    """Seconds after the end of the run; 0: it is revoked at that time."""
    why: str = ""
    """No access key of its own."""

    def __str__(self) -> str:
        if self.kind == "access key":
            return "an access key for each run, deleted when the run ends"
        if self.kind == "session":
            return f"a session for each run, which lasts up to {self.outlives_seconds} s after its end: {self.why}"
        return f"no credential for one run, gangs get the site's own: {self.why}"


def scoped_credentials(
    store: ObjectStore, *, write: str, read: Sequence[str] = (), listed: Sequence[str] = (), owner: str = ""
) -> RunCredential | None:
    """Request a credential from the store's server, limited to the given prefixes.

    Args:
        write: Prefix, e.g. `runs/<project>/<commit>/<run>/gang`; below it all may be written, deleted, read, listed.
        read: What may also be read: all below a prefix that ends with `/`, or the object of that very key.
        listed: Prefixes, each ending with `/`, below which names may also be listed.
        owner: Prefix of the run that it ends with; by default `write`.

    Returns:
        None where the server lends none.

    Raises:
        StorageError: The server did not answer, or refused this key.
        UsageError: A prefix is not one of keys, or one that may be listed does not end with `/`.
    """
    s3 = _s3(store)
    if s3 is None:
        return None
    from gangline.storage.s3 import minio_accounts, sts_sessions

    document = policy(s3, write=write, read=read, listed=listed)
    try:
        text = minio_accounts.add(s3.wire, document, owner=_owner(s3, owner or write), seconds=ACCOUNT_SECONDS)
        return RunCredential(text=text, kind="access key")
    except minio_accounts.AccountsUnavailable:
        session = sts_sessions.assume(s3.wire, document, seconds=SESSION_SECONDS)
        return None if session is None else RunCredential(text=session, kind="session")


def revoke_credentials(store: ObjectStore, owner: str) -> int:
    """Revoke the credentials of the run at the prefix `owner`, and no others; returns their number.

    Sessions cannot be taken back and end by themselves.

    Raises:
        StorageError: The server did not answer.
    """
    s3 = _s3(store)
    if s3 is None:
        return 0
    from gangline.storage.s3 import minio_accounts

    try:
        return minio_accounts.delete(s3.wire, owner=_owner(s3, owner))
    except minio_accounts.AccountsUnavailable:
        return 0


def credential_owners(store: ObjectStore) -> frozenset[str]:
    """Prefixes of the runs that have an access key of this store, made by any driver; sessions are not known.

    Raises:
        StorageError: The server did not answer.
    """
    s3 = _s3(store)
    if s3 is None:
        return frozenset()
    from gangline.storage.s3 import minio_accounts

    root = _owner(s3, "")
    try:
        owners = minio_accounts.owners(s3.wire)
    except minio_accounts.AccountsUnavailable:
        return frozenset()
    return frozenset(owner.removeprefix(root) for owner in owners if owner.startswith(root))


def credential_policy(store: ObjectStore) -> CredentialPolicy:
    """Kind of credential that the server issues, found with a test request for one without rights that expires."""
    s3 = _s3(store)
    if s3 is None:
        return CredentialPolicy(kind="none", outlives_seconds=0, why="the store is a folder")
    from gangline.storage.s3 import minio_accounts, sts_sessions

    try:
        minio_accounts.probe(s3.wire, owner=_owner(s3, _PROBED))
        return CredentialPolicy(kind="access key", outlives_seconds=0)
    except minio_accounts.AccountsUnavailable as error:
        why = str(error)
    try:
        found = sts_sessions.assume(s3.wire, policy(s3, write=_PROBED), seconds=SESSION_SECONDS)
    except StorageError as error:
        return CredentialPolicy(kind="none", outlives_seconds=0, why=str(error))
    if found is None:
        return CredentialPolicy(
            kind="none", outlives_seconds=0, why="the server has neither access keys of MinIO nor STS"
        )
    return CredentialPolicy(kind="session", outlives_seconds=SESSION_SECONDS, why=why)


def policy(store: "S3Store", *, write: str, read: Sequence[str] = (), listed: Sequence[str] = ()) -> dict[str, Any]:
    """What the credential may do, as S3 policy document.

    Uploads are not listed: a server lists those of the whole bucket, and knows no condition for it. What is `admin:` is
    denied by name, as some releases of MinIO let a limited key make an unlimited one (CVE-2025-62506).
    """
    own = check_key(write.removesuffix("/")) + "/"
    for each in (*read, *listed):
        check_prefix(each)
    if wrong := [each for each in listed if not each.endswith("/")]:
        raise UsageError(f"a prefix that may be listed ends with '/', found {wrong[0]!r}")
    bucket = f"arn:aws:s3:::{store.wire.place.bucket}"
    names = [_pattern(store, each) for each in (own, *listed)]
    return {
        "Version": "2012-10-17",
        "Statement": [
            _allow(_WRITE, [f"{bucket}/{_pattern(store, own)}"]),
            _allow(_NOTE, [f"{bucket}/{_pattern(store, UPLOAD_NOTES_PREFIX + own)}"]),
            _allow(("s3:GetObject",), [f"{bucket}/{_pattern(store, each)}" for each in (own, *read)]),
            {**_allow(("s3:ListBucket",), [bucket]), "Condition": _all_like(names)},
            {"Effect": "Deny", "Action": ["admin:*"]},
        ],
    }


def _all_like(prefixes: Sequence[str]) -> dict[str, Any]:
    """A listing names one prefix or more, and all of them are these: MinIO lists by the first, and one that fits
    anywhere in the query is enough for `StringLike`.
    """
    return {each: {"s3:prefix": [*prefixes]} for each in ("StringLike", "ForAllValues:StringLike")}


def _pattern(store: "S3Store", prefix: str) -> str:
    """All below it, or the one key that does not end with `/`; a key has no wild card of its own."""
    return store.prefix + prefix + ("*" if prefix.endswith("/") else "")


def _allow(actions: Iterable[str], resources: Sequence[str]) -> dict[str, Any]:
    return {"Effect": "Allow", "Action": [*actions], "Resource": [*resources]}


def _owner(store: "S3Store", prefix: str) -> str:
    """The run's name among those of all stores of a server."""
    return f"{store.wire.place.bucket}/{store.prefix}{prefix.removesuffix('/')}"


def _s3(store: ObjectStore) -> "S3Store | None":
    if not store.url.startswith("s3:"):
        return None
    from gangline.storage.s3.store import S3Store

    return store if isinstance(store, S3Store) else None
