"""How long a gang of pods takes to start and to go on a real cluster: `python -m benchmarks.cluster.submit [GANGS]`.

Each gang is submitted, followed until its ranks have joined, then cancelled. Start is counted from the call of `submit`
to the first container's start, as the kubelet noted it (whole seconds), beside the scheduler's own time; the cluster is
that of the tests, see `tests/cluster`.
"""

import statistics
import sys
import tempfile
import time
from datetime import datetime
from pathlib import Path

from tests.cluster.cluster import open_cluster
from tests.contracts.launcher.gangs import SAVER
from tests.contracts.launcher.stands import ClusterStand

GOALS = {
    "calls of submit": 12,
    "submit to a started container, beyond the scheduler, s": 2.0,
    "cancel to nothing listed, beyond the grace, s": 10.0,
}


def main(num_gangs: int) -> None:
    cluster = next(open_cluster())
    namespace = cluster.namespace("bench-submit")
    try:
        with tempfile.TemporaryDirectory() as root:
            stand = ClusterStand(Path(root), cluster, namespace)
            show([measure(stand, f"bench-{count}") for count in range(num_gangs)])
    finally:
        cluster.delete(namespace)


def measure(stand: ClusterStand, name: str) -> dict[str, float]:
    stand.api.calls.clear()
    begun, clock = time.time(), time.monotonic()
    stand.launcher.submit(stand.podset(SAVER, name, grace_seconds=20))
    submitted = time.monotonic() - clock
    calls = sum(stand.api.calls.values())
    joined = running_after(stand, name, clock)
    path = f"/api/v1/namespaces/{stand.api.namespace}/pods"
    pod = stand.api.items(path, labels=f"gangline/gang={name}")[0][0]
    clock = time.monotonic()
    stand.launcher.cancel(name, reason="measured")
    cancelled = time.monotonic() - clock
    assert stand.leftovers(name) == [], stand.leftovers(name)
    return {
        "calls of submit": calls,
        "submit returns, s": submitted,
        "pod made, s": stamp(pod["metadata"]["creationTimestamp"]) - begun,
        "scheduler, s": scheduled(pod) - stamp(pod["metadata"]["creationTimestamp"]),
        "submit to a started container, beyond the scheduler, s": started(pod) - begun - scheduled(pod)
        + stamp(pod["metadata"]["creationTimestamp"]),
        "submit to all ranks joined, s": joined,
        "cancel to nothing listed, s": cancelled,
        "cancel to nothing listed, beyond the grace, s": max(0.0, cancelled - 20.0),
    }  # fmt: skip


def running_after(stand: ClusterStand, name: str, clock: float) -> float:
    for event in stand.launcher.follow(name):
        if event.status is not None and event.status.state == "running":
            return time.monotonic() - clock
    raise AssertionError("it ended before it ran")


def scheduled(pod: dict) -> float:
    found = next(each for each in pod["status"]["conditions"] if each["type"] == "PodScheduled")
    return stamp(found["lastTransitionTime"])


def started(pod: dict) -> float:
    return stamp(pod["status"]["containerStatuses"][0]["state"]["running"]["startedAt"])


def stamp(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def show(rows: list[dict[str, float]]) -> None:
    print(f"{len(rows)} gangs of one pod with two ranks; median, largest, goal")
    for name in rows[0]:
        values = [row[name] for row in rows]
        goal = f"<= {GOALS[name]}" if name in GOALS else ""
        print(f"  {name:58} {statistics.median(values):8.2f} {max(values):8.2f}   {goal}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
