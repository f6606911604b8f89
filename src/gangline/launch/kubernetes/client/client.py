"""`KubernetesClient`: `KubernetesApi` over HTTP; `connect` makes one for a real cluster.

What happens to a write whose answer is lost:
    create          sent again; `ApiConflict` may then come from this call, so read the object by name and compare
    delete by uid   sent again: the second call finds nothing
    replace         sent again if it names no resource version: the second call writes the same
    other writes    `ApiUnavailable`: the caller reads, then decides
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, cast

import structlog

from gangline.launch.kubernetes.client.api import (
    ApiExpired,
    Object,
    PatchKind,
    ResourcePath,
    Trim,
    WatchEvent,
    api_error,
    parse_path,
)
from gangline.launch.kubernetes.client.auth import sign_in
from gangline.launch.kubernetes.client.streaming import is_well_formed, log_lines, watch_events
from gangline.launch.kubernetes.client.transport import ApiRequest, ApiResponse, HttpTransport

log = structlog.get_logger()
_PAGE = 500
_WATCH_SECONDS = 300.0
"""Longest watch that is requested; servers may end it earlier."""
SILENCE_SECONDS = 90.0
"""Servers send a bookmark every minute, so a watch that is silent for longer is dead."""
_PATCH_TYPES: dict[PatchKind, str] = {
    "merge": "application/merge-patch+json",
    "json": "application/json-patch+json",
}
_OBJECT, _LIST = "PartialObjectMetadata", "PartialObjectMetadataList"
_STRICT = {"fieldValidation": "Strict"}
_RELISTS = 3


def connect(
    environ: Mapping[str, str],
    *,
    context: str | None = None,
    namespace: str | None = None,
    deadline_seconds: float = 60.0,
) -> "KubernetesClient":
    """Client of the cluster that `environ` names: a kubeconfig, else the one this pod runs in.

    Args:
        context: Of the kubeconfig; None: its current one.
        namespace: Of the gangs' objects; None: that of the context or the pod.
        deadline_seconds: Time limit of one call, over all its tries.

    Raises:
        ConfigError: No cluster is configured, or the configuration is invalid. No request is sent.
    """
    transport = HttpTransport(lambda: sign_in(environ, context=context), deadline_seconds=deadline_seconds)
    return KubernetesClient(transport, namespace=namespace or transport.session.namespace)


class KubernetesClient:
    """Implements `KubernetesApi`; threads may share one.

    Attributes:
        calls: Number of calls by (verb, resource); the tries of one call count once.
    """

    def __init__(self, transport: HttpTransport, *, namespace: str) -> None:
        self.namespace = namespace
        self.calls: Counter[tuple[str, str]] = Counter()
        self._transport = transport

    def get(self, path: str) -> Object | None:
        return self.read(path)

    def read(self, path: str, query: Mapping[str, str] | None = None) -> Object | None:
        request = ApiRequest(verb="get", method="GET", path=path, query=query or {}, repeatable=True)
        return self._found(request)

    def items(
        self, path: str, *, labels: str = "", fields: str = "", keep: Trim | None = None, bare: bool = False
    ) -> tuple[list[Object], str]:
        """A list whose continuation expires halfway is requested again, the last time as one page."""
        for limit in (*[_PAGE] * _RELISTS, 0):
            try:
                return self._pages(
                    path, labels=labels, fields=fields, keep=keep or _as_it_is, limit=limit, accept=_wanted(_LIST, bare)
                )
            except ApiExpired:
                if limit == 0:
                    raise
        raise AssertionError("the last round returns or raises")

    def create(self, path: str, body: Object, *, dry_run: bool = False) -> Object:
        return self._send(
            ApiRequest(
                verb="create",
                method="POST",
                path=path,
                query=_STRICT | ({"dryRun": "All"} if dry_run else {}),
                body=body,
                repeatable="name" in body.get("metadata", {}),
            )
        ).body

    def patch(
        self, path: str, body: Object | list[Object], *, kind: PatchKind = "merge", bare: bool = False
    ) -> Object | None:
        request = ApiRequest(
            verb="patch", method="PATCH", path=path, query=_STRICT, body=body, content_type=_PATCH_TYPES[kind],
            accept=_wanted(_OBJECT, bare),
        )  # fmt: skip
        return self._found(request)

    def replace(self, path: str, body: Object) -> Object | None:
        repeatable = "resourceVersion" not in body["metadata"]
        request = ApiRequest(verb="update", method="PUT", path=path, query=_STRICT, body=body, repeatable=repeatable)
        return self._found(request)

    def delete(
        self, path: str, *, uid: str | None = None, grace_seconds: int | None = None, propagation: str = "Background"
    ) -> bool:
        options: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": propagation}
        if uid is not None:
            options["preconditions"] = {"uid": uid}
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        request = ApiRequest(verb="delete", method="DELETE", path=path, body=options, repeatable=uid is not None)
        return self._send(request, accept=(404, 409) if uid is not None else (404,)).status < 300

    def watch(
        self, path: str, *, labels: str = "", fields: str = "", resource_version: str, seconds: float
    ) -> Iterator[WatchEvent]:
        """May end early, as servers do; the last event or bookmark has the version to continue from."""
        seconds = min(seconds, _WATCH_SECONDS)
        query = {
            **_selected(labels, fields),
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": resource_version,
            "timeoutSeconds": str(max(1, round(seconds))),
        }
        request = ApiRequest(verb="watch", method="GET", path=path, query=query, repeatable=True)
        place = self._count(request)
        with self._transport.stream(request, seconds=seconds, silence_seconds=SILENCE_SECONDS) as stream:
            if stream.refusal is not None:
                raise api_error(stream.refusal.status, stream.refusal.body, verb="watch", place=place)
            yield from watch_events(stream.chunks, set_aside=lambda _: _say_left_out(path))

    def logs(
        self, pod: str, *, container: str | None = None, since: str | None = None, follow: bool = False
    ) -> Iterator[tuple[str, str]]:
        """Lines later than `since`, the time of the caller's last line; none while the container waits to start."""
        path = f"/api/v1/namespaces/{self.namespace}/pods/{pod}/log"
        query = {"timestamps": "true", "follow": "true" if follow else "false"}
        if container is not None:
            query["container"] = container
        if since is not None:
            query["sinceTime"] = since
        request = ApiRequest(verb="get", method="GET", path=path, query=query, repeatable=True)
        place = self._count(request)
        limit = _WATCH_SECONDS * 288 if follow else _WATCH_SECONDS  # a day: connections are not for ever
        with self._transport.stream(request, seconds=limit, silence_seconds=SILENCE_SECONDS) as stream:
            if stream.refusal is None:
                yield from log_lines(stream.chunks, since=since)
            elif not _has_no_log_yet(stream.refusal):
                raise api_error(stream.refusal.status, stream.refusal.body, verb="get", place=place)

    def _pages(
        self, path: str, *, labels: str, fields: str, keep: Trim, limit: int, accept: str
    ) -> tuple[list[Object], str]:
        found: list[Object] = []
        query = _selected(labels, fields) | ({"limit": str(limit)} if limit else {})
        while True:
            request = ApiRequest(verb="list", method="GET", path=path, query=query, repeatable=True, accept=accept)
            body = self._send(request).body
            about = cast("Object", body.get("metadata") or {})
            for each in body.get("items") or ():
                if is_well_formed(each):
                    found.append(keep(each))
                else:
                    _say_left_out(path)
            if not about.get("continue"):
                return found, str(about.get("resourceVersion", ""))
            query = query | {"continue": str(about["continue"])}

    def _found(self, request: ApiRequest) -> Object | None:
        answer = self._send(request, accept=(404,))
        return None if answer.status == 404 else answer.body

    def _send(self, request: ApiRequest, *, accept: tuple[int, ...] = ()) -> ApiResponse:
        place = self._count(request)
        answer = self._transport.send(request)
        if answer.status < 300 or answer.status in accept:
            return answer
        raise api_error(answer.status, answer.body, verb=request.verb, place=place)

    def _count(self, request: ApiRequest) -> ResourcePath:
        place = parse_path(request.path)
        self.calls[(request.verb, place.resource)] += 1
        return place


def _say_left_out(path: str) -> None:
    log.warning("malformed_object", path=path, why="the API server sent an item that is not an object; it is skipped")


def _selected(labels: str, fields: str) -> dict[str, str]:
    return {name: value for name, value in (("labelSelector", labels), ("fieldSelector", fields)) if value}


def _wanted(kind: str, bare: bool) -> str:
    """Accept header: the whole object, or converted by the server to this kind of metadata object."""
    return f"application/json;as={kind};g=meta.k8s.io;v=v1" if bare else "application/json"


def _as_it_is(body: Object) -> Object:
    return body


def _has_no_log_yet(refusal: ApiResponse) -> bool:
    text = str(refusal.body.get("message", ""))
    return refusal.status == 404 or (refusal.status == 400 and "is waiting to start" in text)
