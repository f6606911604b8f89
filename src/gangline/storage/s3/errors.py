"""Error responses of an S3 server: what they mean for people and for the credential that was used."""

import re

from gangline.http.client import HttpResponse

_EXPLAINED = {
    "InvalidAccessKeyId": "the access key is unknown there; check store.credentials and store.endpoint",
    "XAdminUserNotFound": "the access key is unknown there; check store.credentials and store.endpoint",
    "SignatureDoesNotMatch": "the secret key does not belong to the access key; check store.credentials, store.region",
    "AuthorizationHeaderMalformed": "the region differs from the server's; check store.region",
    "InvalidTokenId": "the session token is wrong or has expired; ask for a new credential",
    "ExpiredToken": "the session token has expired; ask for a new credential",
    "RequestTimeTooSkewed": "the clocks differ by more than 15 minutes; synchronise this machine's clock",
    "AccessDenied": "this key may not do that there; widen its policy or use another store.credentials",
    "EntityTooSmall": "parts of an upload but the last have at least 5 MiB",
    "NoSuchUpload": "the upload was aborted or completed; begin a new one",
    "XMinioStorageFull": "the store is full; free some space there",
    "QuotaExceeded": "the quota of the bucket is used up; free some space there",
    "NotImplemented": "the server does not know this request; use one that passes `gangline store doctor`",
}
_BELOW_ANOTHER = (
    "XMinioParentIsObject",
    "ObjectParentIsFile",
    "ExistingObjectIsDirectory",
    "XMinioObjectExistsAsDirectory",
)
_ABOUT_CREDENTIALS = frozenset({
    "ExpiredToken", "InvalidToken", "InvalidTokenId", "TokenRefreshRequired", "RequestExpired",
    "InvalidAccessKeyId", "XAdminUserNotFound", "SignatureDoesNotMatch", "RequestTimeTooSkewed",
})  # fmt: skip
"""AWS answers ExpiredToken and InvalidToken with 400; MinIO answers 403 and forgets an access key that ended."""
_CODE = re.compile(rb"<Code>([A-Za-z0-9]{1,64})</Code>")


def error_code(answer: HttpResponse) -> str:
    """The `<Code>` of an error document, or ''; answers to HEAD have none, but for MinIO's, in a header."""
    match = _CODE.search(answer.data[:4096])
    return match.group(1).decode() if match else answer.headers.get("x-minio-error-code", "")


def is_about_credentials(method: str, answer: HttpResponse) -> bool:
    """Whether a newer credential may change the response; also for a HEAD without a code, which does not say."""
    if answer.status < 400:
        return False
    code = error_code(answer)
    return code in _ABOUT_CREDENTIALS or (method == "HEAD" and not code and answer.status in (400, 401, 403))


def explain(status: int, code: str, *, bucket: str) -> str:
    """What works instead."""
    if code == "NoSuchBucket":
        return f"there is no bucket {bucket}; create it, or check store.url"
    if code in _BELOW_ANOTHER:
        return "no key may lie below another; choose another key"
    if code in _EXPLAINED:
        return _EXPLAINED[code]
    if status in (401, 403):
        return "the key is not accepted; check store.credentials, store.endpoint and the key's policy"
    if 300 <= status < 400:
        return "the server redirects to another endpoint or region; check store.endpoint and store.region"
    return "the server does not accept this request; check store.endpoint, and run `gangline store doctor`"
