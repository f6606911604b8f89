"""`FakeServer`: an API server in memory: paths, versions, conflicts, selectors, pages, watches, strictness, dry run.

It knows no controllers (`controllers`, `kubelet` are those) and no HTTP (`front` speaks it). `test_fake_is_faithful`
asks it and a real server the same questions.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from tests.cluster.fake import discovery, reviews
from tests.cluster.fake.admission import demand_admitted
from tests.cluster.fake.kinds import BUILT_IN, CUSTOM, Kind
from tests.cluster.fake.patches import applied, merged
from tests.cluster.fake.refusal import (
    Refusal,
    bad,
    exists,
    expired,
    forbidden,
    invalid,
    modified,
    not_found,
    not_served,
)
from tests.cluster.fake.selectors import by_fields, by_labels
from tests.cluster.fake.store import Change, Key, Store
from tests.cluster.fake.strict import refuse_unknown
from tests.cluster.fake.writes import born, changed, stamp

from gangline.launch.kubernetes.client.api import ResourcePath, parse_path

Object = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Asked:
    """One request as the server sees it."""

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    body: Any = None
    content_type: str = "application/json"

    @property
    def place(self) -> ResourcePath:
        return parse_path(self.path)


class FakeServer:
    """A server of the built-in kinds and those of `serve` (trainer, jobset, kueue, volcano, kai).

    Attributes:
        store: Its objects, for controllers and tests.
        denied: (verb, resource) that the caller has no right to.
        policies: ValidatingAdmissionPolicies that are bound to every namespace.
        now: Its clock; tests may set it.
        logs: (time, line) by namespace and pod.
    """

    def __init__(self, *, serve: tuple[str, ...] = (), trainer: str = "runtimePatches") -> None:
        self.store = Store()
        self.kinds = (*BUILT_IN, *(kind for each in serve for kind in CUSTOM[each]))
        self.trainer = trainer
        self.denied: set[tuple[str, str]] = set()
        self.policies: list[Object] = []
        self.now: Callable[[], datetime] = lambda: datetime.now(UTC)
        self.logs: dict[tuple[str, str], list[tuple[str, str]]] = {}
        for each in ("default", "kube-system"):
            self.add_namespace(each)

    def add_namespace(self, name: str) -> None:
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        self.store.put(("namespaces", "", name), born(self.kind("namespaces"), body, namespace="", now=self.now()))

    def kind(self, resource: str) -> Kind:
        """By name as in `jobs.batch`."""
        return next(each for each in self.kinds if each.resource == resource)

    def write(self, key: Key, body: Object) -> None:
        """As a controller of the cluster writes: spec and status together, nothing refused."""
        with self.store.changed:
            self._finish(key, self.store.put(key, body))

    def answer(self, asked: Asked) -> tuple[int, Object]:
        """Status and body of anything but a watch or a log."""
        try:
            with self.store.changed:
                return self._answer(asked)
        except Refusal as refusal:
            return refusal.code, refusal.body

    def watch(self, asked: Asked) -> Callable[[], Iterator[bytes]]:
        """A function that gives the lines that came since its last call; raises what the server refuses."""
        kind = self._kind_at(asked.place)
        self._check_right("watch", asked.place, kind)
        labels, fields = self._selectors(asked, kind)
        at = [int(asked.query.get("resourceVersion") or 0) or self.store.version]

        def lines() -> Iterator[bytes]:
            try:
                news = self.store.since(at[0])
            except Refusal as refusal:
                yield _line("ERROR", refusal.body)
                return
            for change in news:
                at[0] = change.version
                if change.key[0] == kind.resource and asked.place.namespace in ("", change.key[1]):
                    yield from _events(change, lambda body: labels(body) and fields(body))

        return lines

    def bookmark(self, asked: Asked) -> bytes:
        kind = self._kind_at(asked.place)
        metadata = {"resourceVersion": str(self.store.version), "creationTimestamp": None}
        return _line("BOOKMARK", {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata})

    def _answer(self, asked: Asked) -> tuple[int, Object]:
        place = asked.place
        if not place.plural:
            return discovery.answer(self, asked)
        kind = self._kind_at(place)
        if kind.group == "authorization.k8s.io":
            return 201, reviews.answer(self, kind, asked.body)
        verb = _verb(asked)
        self._check_right(verb, place, kind)
        match verb:
            case "list":
                return 200, self._list(asked, kind)
            case "create":
                return 201, self._create(asked, kind)
            case "get":
                return 200, self._found(place, kind)
            case "update" | "patch":
                return 200, self._change(asked, kind)
            case "delete":
                return 200, self._delete(asked, kind)
        raise Refusal(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")

    def _list(self, asked: Asked, kind: Kind) -> Object:
        labels, fields = self._selectors(asked, kind)
        version, start = self._continued(asked)
        limit = int(asked.query.get("limit", "0"))
        found = [each for each in self.store.all_of(kind, asked.place.namespace) if labels(each) and fields(each)][
            start:
        ]
        metadata: Object = {"resourceVersion": str(version)}
        if limit and len(found) > limit:
            metadata["continue"] = f"{version}.{start + limit}"
            metadata["remainingItemCount"] = len(found) - limit
            found = found[:limit]
        for each in () if kind.is_custom else found:
            del each["apiVersion"], each["kind"]
        return {"kind": f"{kind.kind}List", "apiVersion": kind.api_version, "metadata": metadata, "items": found}

    def _continued(self, asked: Asked) -> tuple[int, int]:
        if "continue" not in asked.query:
            return self.store.version, 0
        version, start = map(int, asked.query["continue"].split("."))
        if self.store.is_forgotten(version):
            raise expired(version, self.store.version)
        return version, start

    def _create(self, asked: Asked, kind: Kind) -> Object:
        place, body = asked.place, asked.body
        self._check_body(asked, kind, body)
        namespace = place.namespace if kind.namespaced else ""
        if namespace and self.store.get(("namespaces", "", namespace)) is None:
            raise not_found("namespaces", namespace)
        if "name" not in body["metadata"] and "generateName" not in body["metadata"]:
            raise invalid(kind.qualified, "", "metadata.name: Required value: name or generateName is required")
        new = born(kind, body, namespace=namespace, now=self.now())
        key = self._key(kind, namespace, new["metadata"]["name"])
        if self.store.get(key) is not None:
            raise exists(kind.resource, key[2])
        demand_admitted(self.policies, kind, new, None, denied=self.denied)
        return new if _is_dry(asked) else self.store.put(key, new)

    def _change(self, asked: Asked, kind: Kind) -> Object:
        place = asked.place
        before = self._found(place, kind)
        if asked.method == "PUT":
            after = deepcopy(asked.body)
        elif asked.content_type == "application/json-patch+json":
            after = applied(before, asked.body)
        else:
            after = merged(before, asked.body)
        self._check_body(asked, kind, after)
        new = changed(kind, before, after, subresource=place.subresource, is_patch=asked.method == "PATCH")
        if not place.subresource:
            demand_admitted(self.policies, kind, new, before, denied=self.denied)
        key = self._key(kind, place.namespace, place.name)
        if _is_dry(asked):
            return new
        stored = self.store.put(key, new)
        self._finish(key, stored)
        return stored

    def _delete(self, asked: Asked, kind: Kind) -> Object:
        body = self._found(asked.place, kind)
        options = asked.body or {}
        name, uid = body["metadata"]["name"], body["metadata"]["uid"]
        wanted = (options.get("preconditions") or {}).get("uid")
        if wanted not in (None, uid):
            why = f"Precondition failed: UID in precondition: {wanted}, UID in object meta: {uid}"
            raise modified(kind.resource, name, why)
        key = self._key(kind, asked.place.namespace, name)
        grace = _grace(kind, body, options)
        if options.get("propagationPolicy") == "Foreground":
            _add_finalizer(body, "foregroundDeletion")
        if not _is_dry(asked):
            self._mark_deleted(key, body, grace)
        details = {"name": name, "kind": kind.plural, "uid": uid}
        return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}

    def _mark_deleted(self, key: Key, body: Object, grace: int) -> None:
        metadata = body["metadata"]
        if not grace and not metadata.get("finalizers"):
            self.store.remove(key)
            return
        if "deletionTimestamp" not in metadata or grace < metadata.get("deletionGracePeriodSeconds", 0):
            metadata.setdefault("deletionTimestamp", stamp(self.now()))
            metadata["deletionGracePeriodSeconds"] = grace
        self._finish(key, self.store.put(key, body))

    def _finish(self, key: Key, body: Object) -> None:
        """A marked object goes when nobody holds it any more."""
        metadata = body["metadata"]
        is_due = "deletionTimestamp" in metadata and not metadata.get("deletionGracePeriodSeconds")
        if is_due and not metadata.get("finalizers"):
            self.store.remove(key)

    def _check_body(self, asked: Asked, kind: Kind, body: Any) -> None:
        if not isinstance(body, dict) or not isinstance(body.get("metadata"), dict):
            raise bad("the object provided is unrecognized (must be of type Object with metadata)")
        said = (body.get("apiVersion"), body.get("kind"))
        if said != (kind.api_version, kind.kind):
            raise bad(f"{said[1]} in version {said[0]!r} cannot be handled as a {kind.kind}: not of the kind expected")
        if asked.query.get("fieldValidation") == "Strict":
            _refuse_unknown(asked, kind, body)

    def _found(self, place: ResourcePath, kind: Kind) -> Object:
        body = self.store.get(self._key(kind, place.namespace, place.name))
        if body is None:
            raise not_found(kind.resource, place.name)
        return body

    def _key(self, kind: Kind, namespace: str, name: str) -> Key:
        return (kind.resource, namespace if kind.namespaced else "", name)

    def _kind_at(self, place: ResourcePath) -> Kind:
        for each in self.kinds:
            if (each.group, each.version, each.plural) == (place.group, place.version, place.plural):
                return each
        raise not_served()

    def _selectors(self, asked: Asked, kind: Kind) -> tuple[Callable[[Object], bool], Callable[[Object], bool]]:
        labels = by_labels(asked.query.get("labelSelector", ""))
        return labels, by_fields(asked.query.get("fieldSelector", ""), kind.plural)

    def _check_right(self, verb: str, place: ResourcePath, kind: Kind) -> None:
        if (verb, place.resource) in self.denied:
            where = f' in the namespace "{place.namespace}"' if place.namespace else " at the cluster scope"
            why = f'User "fake" cannot {verb} resource "{kind.plural}" in API group "{kind.group}"{where}'
            raise forbidden(kind.resource, place.name, why)


def _refuse_unknown(asked: Asked, kind: Kind, body: Object) -> None:
    try:
        refuse_unknown(body, known=not kind.is_custom)
    except Refusal as refusal:
        if asked.method != "PATCH" or "unknown field" not in str(refusal):
            raise
        shown = json.dumps(json.dumps(body))
        why = str(refusal).partition("strict decoding error: ")[2]
        raise Refusal(
            422, "Invalid", f'"" is invalid: patch: Invalid value: {shown}: strict decoding error: {why}'
        ) from None


def _verb(asked: Asked) -> str:
    if asked.method == "GET":
        return "get" if asked.place.name else "list"
    return {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}[asked.method]


def _is_dry(asked: Asked) -> bool:
    return asked.query.get("dryRun") == "All"


def _grace(kind: Kind, body: Object, options: Object) -> int:
    if kind.kind != "Pod" or not body["spec"].get("nodeName"):
        return 0
    if body["status"].get("phase") in ("Succeeded", "Failed"):
        return 0
    asked = options.get("gracePeriodSeconds")
    return int(body["spec"].get("terminationGracePeriodSeconds", 30) if asked is None else asked)


def _add_finalizer(body: Object, name: str) -> None:
    finalizers = body["metadata"].setdefault("finalizers", [])
    if name not in finalizers:
        finalizers.append(name)


def _events(change: Change, fits: Callable[[Object], bool]) -> Iterator[bytes]:
    was = change.before is not None and fits(change.before)
    is_now = change.after is not None and fits(change.after)
    if is_now and change.after is not None:
        yield _line("MODIFIED" if was else "ADDED", change.after)
    elif was and change.before is not None:
        last = deepcopy(change.after or change.before)
        last["metadata"]["resourceVersion"] = str(change.version)
        yield _line("DELETED", last)


def _line(kind: str, body: Object) -> bytes:
    return json.dumps({"type": kind, "object": body}).encode() + b"\n"
