"""Errors of the API server by status and message: which class a caller gets, and which requests may be retried."""

import re

from gangline.errors import GanglineError
from gangline.launch.kubernetes.client.api import (
    ApiConflict,
    ApiExpired,
    ApiForbidden,
    ApiQuotaExceeded,
    ApiRejected,
    ApiUnavailable,
    Object,
    ResourcePath,
)

_NO_RIGHT = re.compile(r'^(?:.* is forbidden: )?(?:User|user) ".*" cannot |cannot set blockOwnerDeletion')
_PATCH_DID_NOT_APPLY = "the server rejected our request due to an error in our request"
"""All that a server says of a JSON patch whose `test` failed, or whose place is missing."""
_OTHER_UID = "metadata.uid: Invalid value"
"""What it says of a patch that names the uid of an object which had this name before."""
_NO_NAMESPACE = re.compile(r'^namespaces "([^"]+)" not found')
_MAX_MESSAGE = 2000


def server_message(body: Object) -> str:
    """The server's own words, bounded; hostile text ends no line of ours."""
    text = body.get("message")
    return " ".join(str(text or "no message").split())[:_MAX_MESSAGE]


def may_have_happened(status: int, body: Object) -> bool:
    """Whether a write that was answered with this 5xx may have been carried out."""
    return status not in (429, 503) and "failed calling webhook" not in server_message(body)


def is_retryable(status: int, body: Object) -> bool:
    """Whether the same request may be answered otherwise in a moment."""
    busy_quota = status == 409 and _details(body).get("kind") == "resourcequotas"  # two writers charged one quota
    return status == 429 or (status >= 500 and status not in (501, 505)) or busy_quota


def api_error(status: int, body: Object, *, verb: str, place: ResourcePath) -> GanglineError:
    """The error that says what the server refused; its class is what callers act on."""
    text = server_message(body)
    what = f"{verb} {place}"
    match status:
        case 401:
            error: GanglineError = ApiForbidden(
                f"{what}: the API server does not know this account ({text}); sign in again"
            )
        case 403:
            error = _forbidden(what, text, verb=verb, place=place)
        case 404:
            error = ApiRejected(f"{what}: {_missing(text)}")
        case 409:
            error = ApiConflict(f"{what}: {text}")
        case 410:
            error = ApiExpired(f"{what}: {text}")
        case 422 if verb == "patch" and (text == _PATCH_DID_NOT_APPLY or _OTHER_UID in text):
            error = ApiConflict(f"{what}: the object is not as the patch expects it")
        case _ if status >= 500 or status == 429:
            error = ApiUnavailable(f"{what}: the API server answered {status}: {text}")
        case _:
            error = ApiRejected(f"{what}: the API server refused with {status}: {text}")
    return error


def _missing(text: str) -> str:
    if found := _NO_NAMESPACE.search(text):
        return f"there is no namespace {found[1]}; make it, or name another one in launch.namespace"
    return f"nothing is served there ({text})"


def _forbidden(what: str, text: str, *, verb: str, place: ResourcePath) -> GanglineError:
    if "exceeded quota" in text:
        return ApiQuotaExceeded(f"{what}: {text}")
    if _NO_RIGHT.search(text):
        return ApiForbidden(f"{what}: this account lacks the right `{verb}` on `{place.resource}` ({text})")
    return ApiRejected(f"{what}: an admission control refused it: {text}")


def _details(body: Object) -> Object:
    details = body.get("details")
    return details if isinstance(details, dict) else {}
