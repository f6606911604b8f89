"""Cache of watched objects: newest version by resource version, reduced to the fields that are read. No I/O.

The resource version decides, not the order of events. Managed fields and last-applied copies are most of the
bytes of an object and are not read, so they are dropped.
"""

import sys
from collections import OrderedDict
from collections.abc import Iterable
from typing import Any

from gangline.launch.kubernetes.client.api import Object, WatchEvent

_TOMBSTONES = 10_000


class ObjectCache:
    """Objects by uid; an event that is older than the cached version changes nothing."""

    def __init__(self) -> None:
        self.objects: dict[str, Object] = {}
        self._floor = 0
        """Version of the last list; older events are already in it."""
        self._gone: OrderedDict[str, int] = OrderedDict()
        """Version at which a uid was deleted, for events that arrive late."""

    def replace_all(self, found: Iterable[Object], version: str) -> None:
        """Replace all objects with those of a list at `version`."""
        self.objects = {_uid_of(each): each for each in found}
        self._floor = _number(version)
        self._gone.clear()

    def is_newer(self, event: WatchEvent) -> bool:
        """Whether `event` is newer than the cached version of its object."""
        version = _number(version_of(event.object))
        uid = _uid_of(event.object)
        known = self.objects.get(uid)
        at_least = max(self._floor, self._gone.get(uid, 0), _number(version_of(known)) if known else 0)
        return version == 0 or version > at_least

    def apply(self, event: WatchEvent, kept: Object) -> None:
        """Store a newer event; `kept` is the reduced object."""
        uid = _uid_of(event.object)
        if event.kind != "deleted":
            self.objects[uid] = kept
            return
        self.objects.pop(uid, None)
        self._gone[uid] = _number(version_of(event.object))
        if len(self._gone) > _TOMBSTONES:
            self._gone.popitem(last=False)


def _uid_of(body: Object) -> str:
    metadata = body["metadata"]
    return str(metadata.get("uid") or f"{metadata.get('namespace', '')}/{metadata.get('name', '')}")


def version_of(body: Object) -> str:
    """Resource version of `body`; empty if it has none."""
    return str(body["metadata"].get("resourceVersion", ""))


def _number(version: str) -> int:
    """Resource versions are whole numbers; 0 for any other text, which then always counts as newer."""
    return int(version) if version.isdecimal() else 0


_UNREAD_METADATA = ("managedFields", "selfLink")
_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_UNREAD_OF_POD = (
    "volumes",
    "securityContext",
    "affinity",
    "dnsPolicy",
    "dnsConfig",
    "serviceAccount",
    "imagePullSecrets",
    "enableServiceLinks",
    "preemptionPolicy",
)
_READ_OF_CONTAINER = ("name", "image", "resources", "restartPolicy")
_SHORT = 64
"""Longer strings are seldom equal in two objects, so they are not interned."""


def trim_object(body: Object) -> Object:
    """`body` without managed fields, self link and the last-applied copy."""
    metadata = {name: value for name, value in body["metadata"].items() if name not in _UNREAD_METADATA}
    annotations = metadata.get("annotations")
    if annotations and _APPLIED in annotations:
        metadata["annotations"] = {name: value for name, value in annotations.items() if name != _APPLIED}
    kept: Object = _interned({**body, "metadata": metadata})
    return kept


def trim_pod(pod: Object) -> Object:
    """A pod reduced to what placement, waiting reasons and final states read: requests, node, status."""
    spec = {name: value for name, value in pod.get("spec", {}).items() if name not in _UNREAD_OF_POD}
    for part in ("containers", "initContainers"):
        if part in spec:
            spec[part] = [{name: each[name] for name in _READ_OF_CONTAINER if name in each} for each in spec[part]]
    return trim_object({**pod, "spec": spec})


def _interned(value: Any) -> Any:
    """A copy of `value` with interned strings: ten thousand pods repeat the same ones."""
    if isinstance(value, dict):
        return {sys.intern(name): _interned(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_interned(each) for each in value]
    return sys.intern(value) if isinstance(value, str) and len(value) <= _SHORT else value
