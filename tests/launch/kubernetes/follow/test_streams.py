"""Lines of pods come once and in order, whatever becomes of the connection."""

import threading
import time
from datetime import UTC, datetime, timedelta

from tests.cluster.fake.api import FakeApi

from gangline.launch.kubernetes.client.api import ApiUnavailable
from gangline.launch.kubernetes.follow.logs import LogStreams, follow_logs, read_logs
from gangline.spec.gang.podset import PodSet

PODSET = PodSet(
    name="run-1", run="run-1", project="p", commit="c", num_nodes=2, procs_per_node=2,
    code="blobs/sha256/a", plan="blobs/sha256/b", store="s3://b/p",
)  # fmt: skip


class Pods:
    """Logs of pods that break off after every few lines; the server counts whole seconds when it resumes."""

    def __init__(self, lines: dict[str, list[str]], *, breaks: int = 3) -> None:
        self.lines, self.breaks = lines, breaks
        self.namespace = "gangs"
        self.asked: list[str] = []
        self._lock = threading.Lock()

    def logs(self, pod, *, container=None, since=None, follow=False):
        with self._lock:
            self.asked.append(pod)
        sent = 0
        for number, text in enumerate(self.lines[pod]):
            stamp = f"2026-11-21T12:00:{number // 10:02}.{number:09}Z"
            if since is not None and stamp <= since:
                continue
            if sent == self.breaks:
                raise ApiUnavailable("cut")
            sent += 1
            yield stamp, text

    def items(self, path, *, labels="", fields="", keep=None):
        return [pod(name, int(name[-1]), "Running") for name in self.lines], "1"


def pod(name: str, node: int, phase: str):
    index = {"batch.kubernetes.io/job-completion-index": str(node)}
    return {"metadata": {"name": name, "uid": name, "annotations": index}, "status": {"phase": phase}}


def drained(streams: LogStreams) -> list[str]:
    patience, found = time.monotonic() + 60, []
    while not streams.is_drained:
        assert time.monotonic() < patience
        found += [line for _, line in streams.lines(seconds=0.05)]
    return found


def test_cut_connections_lose_and_double_nothing():
    wanted = [f"line {number}" for number in range(8)]
    api = Pods({"pod-0": wanted})
    streams = LogStreams(api)
    streams.keep_up([pod("pod-0", 0, "Running")])
    streams.keep_up([pod("pod-0", 0, "Succeeded")])
    assert drained(streams) == wanted
    assert len(api.asked) >= 3
    streams.stop()


def test_pod_that_begins_later_or_again_is_followed():
    api = Pods({"pod-0": ["first life"], "again-0": ["second life"]})
    streams = LogStreams(api)
    streams.keep_up([pod("pod-0", 0, "Pending")])
    assert streams.is_drained
    streams.keep_up([pod("pod-0", 0, "Failed")])
    assert drained(streams) == ["first life"]
    streams.keep_up([pod("again-0", 0, "Succeeded")])
    assert drained(streams) == ["second life"]


def test_no_more_streams_than_agreed_and_rank_0_is_among_them():
    api = Pods({f"pod-{node}": [f"node {node}"] for node in range(9)})
    streams = LogStreams(api, most=3)
    streams.keep_up([pod(f"pod-{node}", node, "Running") for node in reversed(range(9))])
    patience = time.monotonic() + 30
    while len(set(api.asked)) < 3:
        assert time.monotonic() < patience
        time.sleep(0.01)
    streams.stop()
    assert set(api.asked) == {"pod-0", "pod-1", "pod-2"}


def test_log_of_a_pod_that_is_gone_comes_from_the_store_and_says_so():
    api = Pods({"pod-0": ["r00│ alive", "r01│ also", "k00│ a keeper"]}, breaks=100)
    stored = {2: ["kept"], 3: []}
    lines = list(
        read_logs(api, PODSET, ranks=None, since_seconds=None, stored=lambda _, rank: iter(stored.get(rank, ())))
    )
    assert [(line.rank, line.text, line.source) for line in lines] == [
        (0, "alive", "live"),
        (1, "also", "live"),
        (2, "kept", "store"),
    ]


def test_lines_of_the_last_while_are_followed_and_no_older_ones():
    api = FakeApi()
    about = pod("pod-0", 0, "Succeeded")
    about["metadata"] |= {"namespace": "gangs", "labels": {"gangline/gang": "run-1"}}
    api.server.write(("pods", "gangs", "pod-0"), {"apiVersion": "v1", "kind": "Pod", "spec": {}, **about})
    now = datetime.now(UTC)
    api.server.logs["gangs", "pod-0"] = [
        (f"{now - timedelta(seconds=ago):%Y-%m-%dT%H:%M:%S.%f}000Z", f"r00│ {ago} s ago") for ago in (300, 61, 20, 1)
    ]
    lines = follow_logs(api, PODSET, ranks=None, since_seconds=60, has_ended=lambda: True)
    assert [line.text for line in lines] == ["20 s ago", "1 s ago"]
