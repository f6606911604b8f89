"""Interface to the API server (`KubernetesApi`), its resource paths, and the class of error that an answer becomes.

Paths are those of the server, `/api/v1/namespaces/gangs/pods/x`; objects are dictionaries as JSON has them. Every
write is validated strictly: the server rejects an unknown field instead of dropping it.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol
from urllib.parse import unquote

from gangline.errors import CapacityError, ConfigError, GanglineError, StorageError

Object = dict[str, Any]
PatchKind = Literal["merge", "json"]
Trim = Callable[[Object], Object]
"""Reduces an object to what a caller keeps; may change its argument."""


class ApiUnavailable(StorageError):
    """No answer, or one that does not say what happened (timeout, reset, 5xx). Read the object before trying again."""


class ApiConflict(CapacityError):
    """409: the name is taken, or another writer was first (`resourceVersion`, the `test` of a JSON patch)."""


class ApiExpired(GanglineError):
    """410: the resource version is too old; list again."""

    exit_code = StorageError.exit_code
    retry = "same"


class ApiRejected(ConfigError):
    """400, 422, or a refusal by admission control; the message is the server's own."""


class ApiForbidden(ConfigError):
    """401, 403: this account lacks a right; the message names verb and resource."""


class ApiQuotaExceeded(CapacityError):
    """403 of a ResourceQuota."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WatchEvent:
    """One change of a watched object; a `bookmark` carries only a resource version."""

    kind: Literal["added", "modified", "deleted", "bookmark"]
    object: Object


class KubernetesApi(Protocol):
    """Client of one API server. Retries what is safe (429, 503 with Retry-After; reads) under one total deadline.

    Every call may raise `ApiUnavailable`, `ApiForbidden` or `ApiRejected`; only other errors are named below.
    """

    namespace: str
    """Namespace of the gangs' objects."""

    def get(self, path: str) -> Object | None:
        """The object at `path`; None: 404."""
        ...

    def items(
        self, path: str, *, labels: str = "", fields: str = "", keep: Trim | None = None, bare: bool = False
    ) -> tuple[list[Object], str]:
        """Objects of all pages, and the resource version of the list.

        Args:
            path: Of the collection.
            labels: Label selector.
            fields: Field selector.
            keep: Applied page by page, so that a long list needs little memory.
            bare: Request the metadata of each object only.
        """
        ...

    def create(self, path: str, body: Object, *, dry_run: bool = False) -> Object:
        """POST to a collection. Raises `ApiConflict` if the name is taken."""
        ...

    def patch(
        self, path: str, body: Object | list[Object], *, kind: PatchKind = "merge", bare: bool = False
    ) -> Object | None:
        """The patched object (`bare`: only its metadata); None: 404.

        Raises `ApiConflict` if a `test` operation or the resource version does not match.
        """
        ...

    def replace(self, path: str, body: Object) -> Object | None:
        """PUT; None: 404. Raises `ApiConflict` if the resource version does not match."""
        ...

    def delete(
        self, path: str, *, uid: str | None = None, grace_seconds: int | None = None, propagation: str = "Background"
    ) -> bool:
        """False: the object does not exist, or the name now belongs to an object with another uid."""
        ...

    def watch(
        self, path: str, *, labels: str = "", fields: str = "", resource_version: str, seconds: float
    ) -> Iterator[WatchEvent]:
        """Changes since `resource_version`, for at most `seconds`.

        Raises `ApiUnavailable` if the server sends nothing for too long, `ApiExpired` if the version is too old.
        """
        ...

    def logs(
        self, pod: str, *, container: str | None = None, since: str | None = None, follow: bool = False
    ) -> Iterator[tuple[str, str]]:
        """(RFC 3339 timestamp with nanoseconds, line) of each line after `since`, until the container ends."""
        ...

    def read(self, path: str, query: Mapping[str, str] | None = None) -> Object | None:
        """GET of a document that is not an object, such as `/openapi/v3` or `/version`; None: 404."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class ResourcePath:
    """Parts of an API path; all but `path` are empty where it names no resource, as `/version`."""

    path: str
    group: str = ""
    version: str = ""
    namespace: str = ""
    plural: str = ""
    name: str = ""
    subresource: str = ""

    @property
    def resource(self) -> str:
        """Name as in RBAC rules: `pods`, `pods/log`, `jobs.batch`; the path itself if it names no resource."""
        if not self.plural:
            return self.path
        grouped = f"{self.plural}.{self.group}" if self.group else self.plural
        return f"{grouped}/{self.subresource}" if self.subresource else grouped

    @property
    def served(self) -> str:
        """Name as in `ClusterFacts.served`: `batch/v1/jobs`, core resources `v1/pods`."""
        return "/".join(filter(None, (self.group, self.version, self.plural)))

    def __str__(self) -> str:
        """Words for messages: `jobs.batch run-1 in namespace gangs`."""
        named = f"{self.resource} {self.name}" if self.name else self.resource
        return f"{named} in namespace {self.namespace}" if self.namespace else named


def parse_path(path: str) -> ResourcePath:
    """Split `path` into its parts; the query is not part of it."""
    parts = [unquote(part) for part in path.strip("/").split("/")]
    match parts:
        case ["api", version, *rest] if rest:
            group = ""
        case ["apis", group, version, *rest] if rest:
            pass
        case _:
            return ResourcePath(path=path)
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2 and rest[2] not in ("status", "finalize"):
        namespace, rest = rest[1], rest[2:]
    plural, name, *below = [*rest, "", ""][: max(len(rest), 2)]
    return ResourcePath(
        path=path,
        group=group,
        version=version,
        namespace=namespace,
        plural=plural,
        name=name,
        subresource="/".join(below),
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
    if match := _NO_NAMESPACE.search(text):
        return f"there is no namespace {match[1]}; make it, or name another one in launch.namespace"
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
