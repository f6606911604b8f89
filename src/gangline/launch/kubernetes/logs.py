"""Log lines of chosen ranks: live from the pods' stdout, from the store where the pods are gone."""

import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta

from gangline.errors import GanglineError
from gangline.launch.kubernetes.api.protocol import Api, Away, Object
from gangline.launch.kubernetes.objects.setting import CONTAINER
from gangline.launch.kubernetes.pods import node_rank, phase, pods_of
from gangline.launch.kubernetes.streams import LogStreams
from gangline.launch.protocol import LogLine
from gangline.spec.pod import parse
from gangline.spec.podset import PodSet

StoredLogs = Callable[[PodSet, int], Iterator[str]]
WAIT_SECONDS = 0.5
LISTED_SECONDS = 2.0
DRAIN_SECONDS = 20.0


def read_logs(
    api: Api, podset: PodSet, *, ranks: Sequence[int] | None, since_seconds: float | None, stored: StoredLogs | None
) -> Iterator[LogLine]:
    """What there is by now, pod by pod in rank order."""
    wanted = tuple(range(podset.world_size)) if ranks is None else tuple(ranks)
    pods = {node_rank(pod): pod for pod in pods_of(api, podset.name) if phase(pod) != "Pending"}
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
    api: Api,
    podset: PodSet,
    *,
    ranks: Sequence[int] | None,
    since_seconds: float | None,
    has_ended: Callable[[], bool],
) -> Iterator[LogLine]:
    """Lines of the last while, then those that come, until the gang has ended and all was read."""
    wanted = set(range(podset.world_size) if ranks is None else ranks)
    nodes = {rank // podset.procs_per_node for rank in wanted}
    streams = LogStreams(api, since=_stamp(since_seconds))
    listed = float("-inf")
    patience = float("inf")
    try:
        while time.monotonic() < patience:
            if time.monotonic() - listed >= LISTED_SECONDS:
                listed = time.monotonic()
                _keep_up(api, podset, nodes, streams)
                if patience == float("inf") and has_ended():
                    patience = time.monotonic() + DRAIN_SECONDS
            yield from _of_ranks((line.text for line in streams.lines(seconds=WAIT_SECONDS)), wanted)
            if patience < float("inf") and streams.is_drained:
                return
    finally:
        streams.stop()


def _keep_up(api: Api, podset: PodSet, nodes: set[int], streams: LogStreams) -> None:
    try:
        streams.keep_up(pod for pod in pods_of(api, podset.name) if node_rank(pod) in nodes)
    except Away:
        return  # the streams go on with the pods that they know


def _live(api: Api, pod: Object, since: str | None) -> list[str] | None:
    """None: the pod is gone, or its log."""
    try:
        return [text for _, text in api.logs(pod["metadata"]["name"], container=CONTAINER, since=since)]
    except Away:
        raise
    except GanglineError:
        return None


def _stored(podset: PodSet, ranks: Sequence[int], stored: StoredLogs | None) -> Iterator[LogLine]:
    for rank in ranks if stored is not None else ():
        assert stored is not None
        yield from (LogLine(rank=rank, text=text, source="store") for text in stored(podset, rank))


def _of_ranks(lines: Iterator[str] | list[str], ranks: Sequence[int] | set[int]) -> Iterator[LogLine]:
    for line in lines:
        said = parse(line)
        if said.rank in ranks and said.rank is not None and said.text is not None:
            yield LogLine(rank=said.rank, text=said.text)


def _stamp(since_seconds: float | None) -> str | None:
    if since_seconds is None:
        return None
    return (datetime.now(UTC) - timedelta(seconds=since_seconds)).isoformat(timespec="microseconds")
