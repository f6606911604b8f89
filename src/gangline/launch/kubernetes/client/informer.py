"""Informer: a local copy of one list of the API server, kept current by a thread that lists and watches.

Watches end, stop sending, expire (410), deliver out of order or lose their server; then, and every `relist_seconds`,
the list is read again, so that a missed deletion lasts no longer. While the server is away the copy stays as it was.
The resource version decides, not the order of events. Managed fields and last-applied copies are most of the bytes of
an object and are not read, so they are dropped.
"""

import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import Any, Self

import structlog

from gangline.errors import GanglineError
from gangline.launch.kubernetes.client.api import ApiExpired, ApiUnavailable, KubernetesApi, Object, Trim, WatchEvent
from gangline.sanitize import clean

log = structlog.get_logger()
_RELIST_SECONDS = 240.0
_MOST_UNREADABLE = 1000
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.2, 5.0
_PAUSE_BETWEEN_WATCHES_SECONDS = 0.02
"""Minimum pause between watches, for servers that end each watch at once."""
_SHAPES = (KeyError, TypeError, ValueError, AttributeError, IndexError, RecursionError)
"""Errors that reading an object of an unexpected shape raises."""


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


class Informer:
    """Local copy of one list. Call `start`, `objects` and `stop`, or use it as a context manager.

    Args:
        keep: Reduces each object to what is cached.
        changed: Called from the thread after every change, and when the server goes or comes back.
        seen: Called from the thread with every object as received, before `keep`; deleted objects too.
        relist_seconds: Longest time for which an error of a watch remains in the copy.

    Attributes:
        error: Error that ended the thread, e.g. `ApiForbidden`; None: it runs.
        away_since: Monotonic time since which the server gives no answer; None: it answers.
        is_listed: Set after the first list.
        unreadable: Names of objects that were left out because they could not be read, the first 1,000; each is logged
            once.
    """

    def __init__(
        self,
        api: KubernetesApi,
        path: str,
        *,
        labels: str = "",
        fields: str = "",
        keep: Trim = trim_object,
        changed: Callable[[], object] = lambda: None,
        seen: Callable[[Object], object] = lambda _: None,
        relist_seconds: float = _RELIST_SECONDS,
    ) -> None:
        self.error: GanglineError | None = None
        self.away_since: float | None = None
        self.is_listed = threading.Event()
        self.unreadable: set[str] = set()
        self._api, self._path, self._labels, self._fields = api, path, labels, fields
        self._keep, self._changed, self._seen = keep, changed, seen
        self._relist_seconds = relist_seconds
        self._cache = ObjectCache()
        self._last_contact = time.monotonic()
        self._stopped = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name=f"watch {path.rpartition('/')[2]}", daemon=True)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Return at once; the thread ends with its watch, and no callback is called any more."""
        self._stopped.set()

    def objects(self) -> list[Object]:
        """The objects as last seen; empty before the first list."""
        with self._lock:
            return list(self._cache.objects.values())

    @property
    def stale_seconds(self) -> float:
        """Seconds since the server sent anything, bookmarks included."""
        return time.monotonic() - self._last_contact

    def _run(self) -> None:
        try:
            self._loop()
        except BaseException as error:
            self.error = GanglineError(f"watching {self._path} failed: {error!r}")
            self._notify()
            raise

    def _loop(self) -> None:
        pause = FIRST_PAUSE_SECONDS
        while not self._stopped.is_set():
            try:
                version = self._list()
                pause = FIRST_PAUSE_SECONDS
                self._watch(version)
            except ApiExpired:
                continue
            except ApiUnavailable:
                self._mark_unavailable()
                self._stopped.wait(pause)
                pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
            except GanglineError as error:
                self.error = error
                self._notify()
                return

    def _list(self) -> str:
        found, version = self._api.items(self._path, labels=self._labels, fields=self._fields, keep=self._trim)
        with self._lock:
            self._cache.replace_all((each for each in found if each), version)
        self._mark_contact()
        self.is_listed.set()
        self._notify()
        return version

    def _watch(self, version: str) -> None:
        """Watch from `version` on, as often as needed, until it is time to list again."""
        until = time.monotonic() + self._relist_seconds
        while not self._stopped.wait(_PAUSE_BETWEEN_WATCHES_SECONDS) and (left_seconds := until - time.monotonic()) > 0:
            for event in self._events(version, left_seconds):
                if self._stopped.is_set():
                    return
                self._mark_contact()
                version = version_of(event.object) or version
                if event.kind != "bookmark":
                    self._apply(event)
            self._mark_contact()

    def _events(self, version: str, seconds: float) -> Iterator[WatchEvent]:
        return self._api.watch(
            self._path, labels=self._labels, fields=self._fields, resource_version=version, seconds=seconds
        )

    def _apply(self, event: WatchEvent) -> None:
        if not self._cache.is_newer(event):
            return
        if (kept := self._trim(event.object)) or event.kind == "deleted":
            with self._lock:
                self._cache.apply(event, kept)
            self._notify()

    def _trim(self, found: Object) -> Object:
        """What to cache of `found`; empty if it cannot be read."""
        if not self._stopped.is_set():
            self._seen(found)
        try:
            return self._keep(found)
        except _SHAPES as error:
            self._leave_out(str((found.get("metadata") or {}).get("name")), error)
            return {}

    def _leave_out(self, name: str, error: Exception) -> None:
        """Log it once; names and contents are chosen by anyone who may create objects."""
        if name not in self.unreadable and len(self.unreadable) < _MOST_UNREADABLE:
            self.unreadable.add(name)
            why = clean(f"{type(error).__name__}: {error}", limit=200)
            log.warning("unreadable_object", path=self._path, name=clean(name, limit=100), why=why)

    def _mark_contact(self) -> None:
        self._last_contact = time.monotonic()
        self.away_since = None

    def _mark_unavailable(self) -> None:
        if self.away_since is None:
            self.away_since = time.monotonic()
        self._notify()

    def _notify(self) -> None:
        if not self._stopped.is_set():
            self._changed()
