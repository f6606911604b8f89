"""The garbage collector: what nobody owns any more goes. An owner of another namespace counts as gone."""

from typing import Any

from tests.cluster.fake.server import Asked, FakeServer
from tests.cluster.fake.store import Key

Object = dict[str, Any]


def collect_garbage(server: FakeServer) -> int:
    """One round; returns how many objects it deleted or set free. Chains of owners take a round a link."""
    return _without_owners(server) + _freed_of_foreground(server)


def _without_owners(server: FakeServer) -> int:
    alive = {(body["metadata"]["uid"], _home(body)) for _, body in _all(server)}
    orphans = []
    for key, body in _all(server):
        owners = body["metadata"].get("ownerReferences") or []
        here = {(each["uid"], home) for each in owners for home in (key[1], "")}
        if owners and not here & alive and "deletionTimestamp" not in body["metadata"]:
            orphans.append(key)
    for key in orphans:
        _delete(server, key)
    return len(orphans)


def _freed_of_foreground(server: FakeServer) -> int:
    """Deletes the dependents of owners that wait in the foreground, then lets the owners go."""
    moved = 0
    for key, body in _all(server):
        finalizers = body["metadata"].get("finalizers") or []
        if "deletionTimestamp" not in body["metadata"] or "foregroundDeletion" not in finalizers:
            continue
        below = [(k, b) for k, b in _all(server) if _owns(body, b)]
        waiting = [k for k, b in below if "deletionTimestamp" not in b["metadata"]]
        for each in waiting:
            _delete(server, each)
        moved += len(waiting)
        if not below:
            rest = [each for each in finalizers if each != "foregroundDeletion"]
            server.write(key, {**body, "metadata": {**body["metadata"], "finalizers": rest}})
            moved += 1
    return moved


def _all(server: FakeServer) -> list[tuple[Key, Object]]:
    return [
        ((kind.resource, body["metadata"].get("namespace", ""), body["metadata"]["name"]), body)
        for kind in server.kinds
        for body in server.store.all_of(kind, "")
    ]


def _home(body: Object) -> str:
    return str(body["metadata"].get("namespace", ""))


def _owns(owner: Object, body: Object) -> bool:
    return any(each["uid"] == owner["metadata"]["uid"] for each in body["metadata"].get("ownerReferences") or [])


def _delete(server: FakeServer, key: Key) -> None:
    kind = server.kind(key[0])
    middle = f"/namespaces/{key[1]}" if key[1] else ""
    status, body = server.answer(Asked(method="DELETE", path=f"{kind.root}{middle}/{kind.plural}/{key[2]}"))
    assert status in (200, 404), body
