"""Logs of running pods, followed by a thread each: lines once, in order, whatever becomes of the connection."""

import queue
import threading
from collections.abc import Iterable
from dataclasses import dataclass, field

from gangline.errors import GanglineError
from gangline.launch.kubernetes.api.protocol import Api, Away, Object
from gangline.launch.kubernetes.objects.setting import CONTAINER
from gangline.launch.kubernetes.pods import is_over, node_rank, phase

MAX_STREAMS = 32
"""Connections of one follower: rank 0's pod first, the others by rank."""
MAX_LINES = 10_000
"""Held for a follower that does not keep up; beyond them the server waits."""
PAUSE_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class Line:
    node: int
    text: str


@dataclass
class _Stream:
    name: str
    node: int
    is_over: threading.Event = field(default_factory=threading.Event)
    """Its container has ended, or its pod is gone: what comes now is the last of it."""
    is_drained: threading.Event = field(default_factory=threading.Event)


class LogStreams:
    """Of the pods of one gang; `since`, a time as logs have it: what is later, none: all of it."""

    def __init__(self, api: Api, *, most: int = MAX_STREAMS, since: str | None = None) -> None:
        self._api = api
        self._since = since
        self._most = most
        self._lines: queue.Queue[Line] = queue.Queue(MAX_LINES)
        self._streams: dict[str, _Stream] = {}
        self._over = threading.Event()

    def keep_up(self, pods: Iterable[Object]) -> None:
        """Follow those that have begun, as far as there is room, and let go of those that are gone."""
        listed = {pod["metadata"]["uid"]: pod for pod in sorted(pods, key=node_rank)}
        for uid, stream in self._streams.items():
            if uid not in listed or is_over(listed[uid]):
                stream.is_over.set()
        for uid, pod in listed.items():
            busy = sum(not each.is_drained.is_set() for each in self._streams.values())
            if uid not in self._streams and phase(pod) != "Pending" and busy < self._most:
                self._start(uid, pod)

    def lines(self, *, seconds: float) -> list[Line]:
        """What has come, after waiting for the first of it that long."""
        found: list[Line] = []
        try:
            found.append(self._lines.get(timeout=seconds))
            while len(found) < MAX_LINES:
                found.append(self._lines.get_nowait())
        except queue.Empty:
            pass
        return found

    @property
    def is_drained(self) -> bool:
        """All streams have come to their end, and every line was taken."""
        return self._lines.empty() and all(each.is_drained.is_set() for each in self._streams.values())

    def stop(self) -> None:
        """Return at once; the threads end with their next line, or with their connection."""
        self._over.set()

    def _start(self, uid: str, pod: Object) -> None:
        stream = self._streams[uid] = _Stream(pod["metadata"]["name"], node_rank(pod))
        if is_over(pod):
            stream.is_over.set()
        threading.Thread(target=self._follow, args=(stream,), name=f"log {stream.name}", daemon=True).start()

    def _follow(self, stream: _Stream) -> None:
        """Until its end was read after its container had ended: a connection that ends says nothing by itself."""
        last = self._since
        while not self._over.is_set():
            was_over = stream.is_over.is_set()
            try:
                for stamp, text in self._api.logs(stream.name, container=CONTAINER, since=last, follow=not was_over):
                    last = stamp
                    if not self._put(Line(stream.node, text)):
                        return
            except Away:
                was_over = False
            except GanglineError:
                pass  # the pod is gone, or its log is
            if was_over:
                break
            (self._over if stream.is_over.is_set() else stream.is_over).wait(PAUSE_SECONDS)
        stream.is_drained.set()

    def _put(self, line: Line) -> bool:
        while not self._over.is_set():
            try:
                self._lines.put(line, timeout=0.5)
            except queue.Full:
                continue
            return True
        return False
