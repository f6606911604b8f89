"""`KubernetesApi`: the API server as this room uses it, its paths, and the errors on which callers act.

Paths are those of the server, `/api/v1/namespaces/gangs/pods/x`; objects are dictionaries as JSON has them. Every
write is validated strictly: the server rejects an unknown field instead of dropping it.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol
from urllib.parse import unquote

from gangline.errors import CapacityError, ConfigError, GanglineError, StorageError

Object = dict[str, Any]
PatchKind = Literal["merge", "json"]
Trim = Callable[[Object], Object]
"""What of an object a caller keeps; may change the one it is given."""


class ApiUnavailable(StorageError):
    """No answer, or none that tells what happened (timeout, reset, 5xx): unknown, never gone. Read, then try again."""


class ApiConflict(CapacityError):
    """409: a name is taken, or another writer was first (`resourceVersion`, a JSON patch's `test`)."""


class ApiExpired(GanglineError):
    """410: the resource version is too old; list again."""

    exit_code = StorageError.exit_code
    retry = "same"


class ApiRejected(ConfigError):
    """400, 422, or an admission control said no: the message is the server's own."""


class ApiForbidden(ConfigError):
    """401, 403: this account may not; the message names verb and resource."""


class ApiQuotaExceeded(CapacityError):
    """403 of a ResourceQuota."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WatchEvent:
    kind: Literal["added", "modified", "deleted", "bookmark"]
    object: Object


class KubernetesApi(Protocol):
    """One API server. Retries what is safe to retry (429, 503 with their Retry-After; reads) under one total deadline.

    Every call raises `Away`, `Denied`, `Refused` as above; only others are named below.
    """

    namespace: str
    """That of this gang's objects."""

    def get(self, path: str) -> Object | None:
        """None: 404."""
        ...

    def items(
        self, path: str, *, labels: str = "", fields: str = "", keep: Trim | None = None, bare: bool = False
    ) -> tuple[list[Object], str]:
        """All pages, and the resource version of the list; `keep` is asked page by page, so long lists stay small.

        `bare`: of each object its metadata alone.
        """
        ...

    def create(self, path: str, body: Object, *, dry_run: bool = False) -> Object:
        """POST to a collection. Raises `Conflict` where the name is taken."""
        ...

    def patch(
        self, path: str, body: Object | list[Object], *, kind: PatchKind = "merge", bare: bool = False
    ) -> Object | None:
        """The object as it is then, `bare`: its metadata alone; None: 404.

        Raises `Conflict` when a `test` or the resource version does not fit.
        """
        ...

    def replace(self, path: str, body: Object) -> Object | None:
        """PUT; None: 404. Raises `Conflict` when the resource version does not fit."""
        ...

    def delete(
        self, path: str, *, uid: str | None = None, grace_seconds: int | None = None, propagation: str = "Background"
    ) -> bool:
        """False: it was not there, or another object (uid) has its name by now."""
        ...

    def watch(
        self, path: str, *, labels: str = "", fields: str = "", resource_version: str, seconds: float
    ) -> Iterator[WatchEvent]:
        """Changes since `resource_version`, for `seconds` at most; silence ends as `Away`. Raises `Gone`."""
        ...

    def logs(
        self, pod: str, *, container: str | None = None, since: str | None = None, follow: bool = False
    ) -> Iterator[tuple[str, str]]:
        """(timestamp as RFC 3339 with nanoseconds, line) from `since` on; ends with the container, or as `Away`."""
        ...

    def read(self, path: str, query: Mapping[str, str] | None = None) -> Object | None:
        """GET of anything that is no object: `/openapi/v3`, `/version`, a review; None: 404."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class ResourcePath:
    """What a path points at; all empty but `path` where it is no resource, as `/version`."""

    path: str
    group: str = ""
    version: str = ""
    namespace: str = ""
    plural: str = ""
    name: str = ""
    subresource: str = ""

    @property
    def resource(self) -> str:
        """As rights name it: `pods`, `pods/log`, `jobs.batch`; the path itself where it is no resource."""
        if not self.plural:
            return self.path
        grouped = f"{self.plural}.{self.group}" if self.group else self.plural
        return f"{grouped}/{self.subresource}" if self.subresource else grouped

    @property
    def served(self) -> str:
        """As `Facts.served` names it: `batch/v1/jobs`, core ones `v1/pods`."""
        return "/".join(filter(None, (self.group, self.version, self.plural)))

    def __str__(self) -> str:
        """For messages: `jobs.batch run-1 in namespace gangs`."""
        named = f"{self.resource} {self.name}" if self.name else self.resource
        return f"{named} in namespace {self.namespace}" if self.namespace else named


def parse_path(path: str) -> ResourcePath:
    """Take `path` apart, without its query."""
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
