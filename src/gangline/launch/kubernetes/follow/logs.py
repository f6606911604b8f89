"""Log lines of chosen ranks: from the stdout of running pods, or from the store once the pods are gone.

One thread follows each running pod; every line comes once and in order, across reconnects.
"""

import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from gangline.errors import GanglineError
from gangline.launch.kubernetes.client.api import ApiUnavailable, KubernetesApi, Object
from gangline.launch.kubernetes.objects.labels import CONTAINER
from gangline.launch.kubernetes.state.pods import is_over, list_pods, node_rank, phase
from gangline.launch.protocol import LogLine
from gangline.spec.gang.pod_output import parse
from gangline.spec.gang.podset import PodSet

_MAX_STREAMS = 32
"""Connections of one follower; pods are followed in rank order."""
_MAX_LINES = 10_000
"""Lines that are buffered for a slow follower; when full, reading from the server pauses."""
_PAUSE_SECONDS = 0.5


@dataclass
class _Stream:
    uid: str
    name: str
    is_over: threading.Event = field(default_factory=threading.Event)
    """Its container has ended or its pod is gone; what is read now is the rest of the log."""
    is_drained: threading.Event = field(default_factory=threading.Event)


class LogStreams:
    """Log streams of the pods of one gang; `since` (RFC 3339): only later lines, None: all of them."""

    def __init__(self, api: KubernetesApi, *, most: int = _MAX_STREAMS, since: str | None = None) -> None:
        self._api = api
        self._since = since
        self._most = most
        self._lines: queue.Queue[tuple[str, str]] = queue.Queue(_MAX_LINES)
        self._streams: dict[str, _Stream] = {}
        self._over = threading.Event()

    def keep_up(self, pods: Iterable[Object]) -> None:
        """Follow pods that have started, up to the limit, and mark streams of pods that are gone."""
        listed = {pod["metadata"]["uid"]: pod for pod in sorted(pods, key=node_rank)}
        for uid, stream in self._streams.items():
            if uid not in listed or is_over(listed[uid]):
                stream.is_over.set()
        for uid, pod in listed.items():
            busy = sum(not each.is_drained.is_set() for each in self._streams.values())
            if uid not in self._streams and phase(pod) != "Pending" and busy < self._most:
                self._start(uid, pod)

    def lines(self, *, seconds: float) -> list[tuple[str, str]]:
        """(uid of the pod, line) of each line read so far, after waiting at most `seconds` for the first."""
        found: list[tuple[str, str]] = []
        try:
            found.append(self._lines.get(timeout=seconds))
            while len(found) < _MAX_LINES:
                found.append(self._lines.get_nowait())
        except queue.Empty:
            pass
        return found

    @property
    def is_drained(self) -> bool:
        """Whether all streams have ended and every line was taken."""
        return self._lines.empty() and all(stream.is_drained.is_set() for stream in self._streams.values())

    def stop(self) -> None:
        """Return at once; the threads end with their next line, or with their connection."""
        self._over.set()

    def _start(self, uid: str, pod: Object) -> None:
        stream = self._streams[uid] = _Stream(uid, pod["metadata"]["name"])
        if is_over(pod):
            stream.is_over.set()
        threading.Thread(target=self._follow, args=(stream,), name=f"log {stream.name}", daemon=True).start()

    def _follow(self, stream: _Stream) -> None:
        """Read until the stream ends after its container has ended; before that, reconnect when a connection ends."""
        last = self._since
        while not self._over.is_set():
            was_over = stream.is_over.is_set()
            try:
                for stamp, text in self._api.logs(stream.name, container=CONTAINER, since=last, follow=not was_over):
                    last = stamp
                    if not self._put(stream.uid, text):
                        return
            except ApiUnavailable:
                was_over = False
            except GanglineError:
                pass  # the pod is gone, or its log is
            if was_over:
                break
            (self._over if stream.is_over.is_set() else stream.is_over).wait(_PAUSE_SECONDS)
        stream.is_drained.set()

    def _put(self, uid: str, line: str) -> bool:
        while not self._over.is_set():
            try:
                self._lines.put((uid, line), timeout=0.5)
            except queue.Full:
                continue
            return True
        return False


StoredLogs = Callable[[PodSet, int], Iterator[str]]
WAIT_SECONDS = 0.5
_LISTED_SECONDS = 2.0
DRAIN_SECONDS = 20.0


def read_logs(
    api: KubernetesApi,
    podset: PodSet,
    *,
    ranks: Sequence[int] | None,
    since_seconds: float | None,
    stored: StoredLogs | None,
) -> Iterator[LogLine]:
    """Lines so far, pod by pod in rank order; `stored` reads the log of a rank whose pod is gone."""
    wanted = tuple(range(podset.world_size)) if ranks is None else tuple(ranks)
    pods = {node_rank(pod): pod for pod in list_pods(api, podset.name) if phase(pod) != "Pending"}
    since = _stamp(since_seconds)
    for node in sorted({rank // podset.procs_per_node for rank in wanted}):
        mine = [rank for rank in wanted if rank // podset.procs_per_node == node]
        pod = pods.get(node)
        lines = None if pod is None else _live(api, pod, since)
        if lines is None:
            yield from _stored(podset, mine, stored)
        else:
            yield from _of_ranks(lines, mine)


def follow_logs(
    api: KubernetesApi,
    podset: PodSet,
    *,
    ranks: Sequence[int] | None,
    since_seconds: float | None,
    has_ended: Callable[[], bool],
) -> Iterator[LogLine]:
    """Lines of the last `since_seconds`, then new ones, until the gang has ended and all lines were read."""
    wanted = set(range(podset.world_size) if ranks is None else ranks)
    nodes = {rank // podset.procs_per_node for rank in wanted}
    streams = LogStreams(api, since=_stamp(since_seconds))
    listed = float("-inf")
    deadline = float("inf")
    try:
        while time.monotonic() < deadline:
            if time.monotonic() - listed >= _LISTED_SECONDS:
                listed = time.monotonic()
                _keep_up(api, podset, nodes, streams)
                if deadline == float("inf") and has_ended():
                    deadline = time.monotonic() + DRAIN_SECONDS
            yield from _of_ranks((line for _, line in streams.lines(seconds=WAIT_SECONDS)), wanted)
            if deadline < float("inf") and streams.is_drained:
                return
    finally:
        streams.stop()


def _keep_up(api: KubernetesApi, podset: PodSet, nodes: set[int], streams: LogStreams) -> None:
    try:
        streams.keep_up(pod for pod in list_pods(api, podset.name) if node_rank(pod) in nodes)
    except ApiUnavailable:
        return  # the streams continue with the pods that they know


def _live(api: KubernetesApi, pod: Object, since: str | None) -> list[str] | None:
    """None: the pod or its log is gone."""
    try:
        return [text for _, text in api.logs(pod["metadata"]["name"], container=CONTAINER, since=since)]
    except ApiUnavailable:
        raise
    except GanglineError:
        return None


def _stored(podset: PodSet, ranks: Sequence[int], stored: StoredLogs | None) -> Iterator[LogLine]:
    for rank in ranks if stored is not None else ():
        assert stored is not None
        yield from (LogLine(rank=rank, text=text, source="store") for text in stored(podset, rank))


def _of_ranks(lines: Iterator[str] | list[str], ranks: Sequence[int] | set[int]) -> Iterator[LogLine]:
    for line in lines:
        pod_line = parse(line)
        if pod_line.rank in ranks and pod_line.rank is not None and pod_line.text is not None:
            yield LogLine(rank=pod_line.rank, text=pod_line.text)


def _stamp(since_seconds: float | None) -> str | None:
    if since_seconds is None:
        return None
    return (datetime.now(UTC) - timedelta(seconds=since_seconds)).isoformat(timespec="microseconds")
