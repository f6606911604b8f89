"""Informer: a local copy of one list of the API server, kept current by list and watch in its own thread.

Watches end, fall silent, or lose their place (410), their order or their server; then, and every `relist_seconds`,
the list is read again, so that a missed deletion lasts no longer. The copy holds what the server said last.
"""

import threading
import time
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Self

from gangline.errors import GanglineError
from gangline.launch.kubernetes.client.api import ApiExpired, ApiUnavailable, KubernetesApi, Object, Trim, WatchEvent
from gangline.launch.kubernetes.client.object_cache import ObjectCache, trim_object, version_of

RELIST_SECONDS = 240.0
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.2, 5.0
_PAUSE_BETWEEN_WATCHES_SECONDS = 0.02
"""Between watches, whatever a server does to end them at once."""
_SHAPES = (KeyError, TypeError, ValueError, AttributeError, IndexError, RecursionError)
"""What reading an object of a shape that nobody expects raises."""


class Informer:
    """Objects of one list. Start it, read it, stop it; or use it as a context manager.

    Args:
        keep: What of each object is held.
        changed: Called from the thread after every change, and when the server goes or comes back.
        seen: Called from the thread with every object as it came, before it is cut, deleted ones too.
        relist_seconds: Longest time that a lie of a watch may stand.

    Attributes:
        error: What ended it for good, e.g. `Denied`.
        away_since: Since when the server gives no answer, on the monotonic clock; None: it answers.
        is_listed: Set once there was a first list.
        set_aside: Objects whose shape nobody could read, left out one by one.
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
        relist_seconds: float = RELIST_SECONDS,
    ) -> None:
        self.error: GanglineError | None = None
        self.away_since: float | None = None
        self.is_listed = threading.Event()
        self.set_aside = 0
        self._api, self._path, self._labels, self._fields = api, path, labels, fields
        self._keep, self._changed, self._seen = keep, changed, seen
        self._relist_seconds = relist_seconds
        self._held = ObjectCache()
        self._heard = time.monotonic()
        self._over = threading.Event()
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
        self._thread.start()

    def stop(self) -> None:
        """Return at once; the thread ends with its watch, and nothing is told any more."""
        self._over.set()

    def objects(self) -> list[Object]:
        with self._lock:
            return list(self._held.objects.values())

    @property
    def stale_seconds(self) -> float:
        """Age of the server's last word, bookmarks included."""
        return time.monotonic() - self._heard

    def _run(self) -> None:
        try:
            self._go_on()
        except BaseException as error:
            self.error = GanglineError(f"watching {self._path} broke down: {error!r}")
            self._tell()
            raise

    def _go_on(self) -> None:
        pause = FIRST_PAUSE_SECONDS
        while not self._over.is_set():
            try:
                version = self._list()
                pause = FIRST_PAUSE_SECONDS
                self._watch(version)
            except ApiExpired:
                continue
            except ApiUnavailable:
                self._lose()
                self._over.wait(pause)
                pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
            except GanglineError as error:
                self.error = error
                self._tell()
                return

    def _list(self) -> str:
        found, version = self._api.items(self._path, labels=self._labels, fields=self._fields, keep=self._cut)
        with self._lock:
            self._held.relist((each for each in found if each), version)
        self._hear()
        self.is_listed.set()
        self._tell()
        return version

    def _watch(self, version: str) -> None:
        """From `version` on, watch after watch, until it is time to list again."""
        until = time.monotonic() + self._relist_seconds
        while not self._over.wait(_PAUSE_BETWEEN_WATCHES_SECONDS) and (left_seconds := until - time.monotonic()) > 0:
            for event in self._events(version, left_seconds):
                if self._over.is_set():
                    return
                self._hear()
                version = version_of(event.object) or version
                if event.kind != "bookmark":
                    self._take(event)
            self._hear()

    def _events(self, version: str, seconds: float) -> Iterator[WatchEvent]:
        return self._api.watch(
            self._path, labels=self._labels, fields=self._fields, resource_version=version, seconds=seconds
        )

    def _take(self, event: WatchEvent) -> None:
        if not self._held.is_news(event):
            return
        if (kept := self._cut(event.object)) or event.kind == "deleted":
            with self._lock:
                self._held.take(event, kept)
            self._tell()

    def _cut(self, found: Object) -> Object:
        """What to hold of `found`; nothing of one that cannot be read."""
        if not self._over.is_set():
            self._seen(found)
        try:
            return self._keep(found)
        except _SHAPES:
            self.set_aside += 1
            return {}

    def _hear(self) -> None:
        self._heard = time.monotonic()
        self.away_since = None

    def _lose(self) -> None:
        if self.away_since is None:
            self.away_since = time.monotonic()
        self._tell()

    def _tell(self) -> None:
        if not self._over.is_set():
            self._changed()
