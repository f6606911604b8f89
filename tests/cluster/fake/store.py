"""Objects by place, one counter of versions, and the history that watches read. Knows nothing of requests."""

import threading
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from tests.cluster.fake.kinds import Kind
from tests.cluster.fake.refusal import expired

Object = dict[str, Any]
Key = tuple[str, str, str]
"""Resource, namespace, name."""


@dataclass(frozen=True)
class Change:
    version: int
    key: Key
    before: Object | None
    after: Object | None


class Store:
    """Not a copy is shared: what goes in and out is copied. `changed` is notified at every change."""

    def __init__(self) -> None:
        self.changed = threading.Condition(threading.RLock())
        self.version = 1000
        self._objects: dict[Key, Object] = {}
        self._history: list[Change] = []
        self._oldest = 1000
        """Watches that begin before this one are refused."""

    def get(self, key: Key) -> Object | None:
        with self.changed:
            return deepcopy(self._objects.get(key))

    def all_of(self, kind: Kind, namespace: str) -> Iterator[Object]:
        """In the order of names, as the server lists; every namespace if `namespace` is empty."""
        with self.changed:
            keys = sorted(key for key in self._objects if key[0] == kind.resource and namespace in ("", key[1]))
            found = [deepcopy(self._objects[key]) for key in keys]
        return iter(found)

    def put(self, key: Key, body: Object) -> Object:
        """Store `body` under a new version, unless that changes nothing."""
        with self.changed:
            before = self._objects.get(key)
            if before is not None and _without_version(before) == _without_version(body):
                return deepcopy(before)
            self.version += 1
            after = deepcopy(body)
            after["metadata"]["resourceVersion"] = str(self.version)
            self._objects[key] = after
            self._note(Change(self.version, key, before, after))
            return deepcopy(after)

    def remove(self, key: Key) -> None:
        with self.changed:
            before = self._objects.pop(key, None)
            if before is not None:
                self.version += 1
                self._note(Change(self.version, key, before, None))

    def since(self, version: int) -> list[Change]:
        """Changes after `version`; raises 410 where they are forgotten."""
        with self.changed:
            if version < self._oldest:
                raise expired(version, self._oldest)
            return [each for each in self._history if each.version > version]

    def forget_history(self) -> None:
        """As the server's compaction: watches and pages of earlier lists have to begin anew."""
        with self.changed:
            self._oldest = self.version
            self._history.clear()
            self.changed.notify_all()

    def is_forgotten(self, version: int) -> bool:
        with self.changed:
            return version < self._oldest

    def _note(self, change: Change) -> None:
        self._history.append(change)
        self.changed.notify_all()


def _without_version(body: Object) -> Object:
    metadata = {name: value for name, value in body["metadata"].items() if name != "resourceVersion"}
    return {**body, "metadata": metadata}
