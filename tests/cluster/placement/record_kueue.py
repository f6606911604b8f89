"""Records what a real Kueue writes about gangs: `python -m tests.cluster.placement.record_kueue [SCENE...]`.

Puts gangs on the servers of `kueue_stage` in the project's own cluster, and keeps what a follower reads of them:
admissions in `tests/launch/kubernetes/placement/kueue`, waits in `tests/launch/kubernetes/waiting/snapshots`.
"""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC
from pathlib import Path
from typing import Any

from tests.cluster.cluster import open_cluster
from tests.cluster.placement.kueue_stage import HOST, KUEUE, LEVELS, RACKS, Body, Stage
from tests.launch.kubernetes.placement.recorded import RECORDS
from tests.launch.kubernetes.waiting.record import slim
from tests.launch.kubernetes.waiting.seen import SNAPSHOTS

from gangline.launch.kubernetes.waiting import explain
from gangline.launch.kubernetes.waiting.evidence import gather_evidence

RELEASE = "v1.34.4, Kueue 0.19.2"
PODS_CONTAINER = ("name", "image", "resources")
SECOND = {"nodeLabels": {"gangline/paper": "yes", "gangline/second": "yes"}}


def main(*only: str) -> None:
    with _stage() as stage:
        for scene in SCENES:
            if not only or scene.__name__ in only:
                print(scene.__name__, flush=True)
                scene(stage)
                stage.clear()


@contextmanager
def _stage() -> Iterator[Stage]:
    for cluster in open_cluster():
        with cluster.lend_kueue():
            stage = Stage(cluster)
            try:
                yield stage
            finally:
                stage.close()


def admitted(stage: Stage) -> None:
    stage.open_queue()
    stage.submit("g", 4)
    stage.until_running("g", 4)
    keep_admission(stage, "admitted")
    keep_admission(stage, "admitted-v1beta1", version="kueue.x-k8s.io/v1beta1")


def two_pods_a_server(stage: Stage) -> None:
    stage.open_queue()
    stage.submit("g", 4, cpus=1, tile=4)
    stage.until_running("g", 4)
    keep_admission(stage, "two-pods-a-server")


def lost_server(stage: Stage) -> None:
    """A server of the gang goes, and Kueue gives the gang another one."""
    stage.add_server("gangline-5", "r1")
    stage.open_queue()
    stage.submit("g", 4)
    stage.until_running("g", 4)
    lost = next(str(pod["spec"]["nodeName"]) for pod in stage.pods("g"))
    stage.remove_server(lost)
    stage.until(lambda: lost not in {pod["spec"].get("nodeName") for pod in stage.pods("g")}, f"leaving {lost}")
    stage.until_running("g", 4)
    keep_admission(stage, "after-a-server-is-lost")


def admitted_again(stage: Stage) -> None:
    """A gang of which an evicted pod stays listed is preempted, and admitted again on another flavor."""
    few = {"cpu": "4", "memory": "8Gi"}
    stage.open_queue({"first": {}}, quotas=few)
    stage.submit("g", 4, cpus=1, priority="low")
    stage.until_running("g", 4)
    stage.evict(stage.pods("g")[0])
    stage.until(lambda: len(stage.pods("g")) == 5, "a pod in place of the evicted one")
    stage.until_running("g", 4)
    stage.submit("grave", 4, cpus=1, priority="high")
    stage.until_running("grave", 4)
    keep_admission(stage, "evicted")
    stage.open_queue({"first": {}, "second": SECOND}, quotas=few)
    stage.until_running("g", 4)
    keep_admission(stage, "admitted-again")


def waits(stage: Stage) -> None:
    """What no server takes, and what only none takes now."""
    stage.open_queue()
    stage.submit("g", 2, gpus=8)
    keep_wait(stage, "no-server-has-gpus", 'resource "nvidia.com/gpu"')
    stage.clear_gangs()
    stage.submit("large", 4, cpus=2, tile=4)
    keep_wait(stage, "tile-too-large", "allows to fit only", gang="large")
    stage.clear_gangs()
    stage.submit("first", 4)
    stage.until_running("first", 4)
    stage.submit("g", 2)
    keep_wait(stage, "busy", 'resource "cpu"')
    stage.clear_gangs()
    stage.submit("g", 2)
    stage.until_running("g", 2)
    stage.deactivate("g")
    keep_wait(stage, "deactivated", "deactivated")
    stage.clear_gangs()
    for name in RACKS:
        stage.taint(name, {"key": "gangline/pool", "value": "gpus", "effect": "NoSchedule"})
    stage.submit("g", 2)
    keep_wait(stage, "taint", f'NoSchedule": {len(RACKS)}')


def keep_admission(stage: Stage, name: str, *, version: str = KUEUE) -> None:
    """Write what a follower of gang `g` reads of its admission."""
    root = stage.root("g")
    kinds = f"/apis/{KUEUE}"
    kept = {
        "recorded": True,
        "server": RELEASE,
        "root": slim(root.object),
        "pods": [slim(pod) for pod in sorted(stage.pods("g"), key=lambda pod: str(pod["metadata"]["name"]))],
        "workload": slim(stage.workload("g", version) or {}),
        "flavors": [slim(each) for each in stage.api.items(f"{kinds}/resourceflavors")[0]],
        "topologies": [slim(each) for each in stage.api.items(f"{kinds}/topologies")[0]],
        "nodes": [_labels(node) for node in stage.api.items("/api/v1/nodes")[0]],
    }
    _write(RECORDS / f"{name}.json", kept)


def keep_wait(stage: Stage, name: str, words: str, *, gang: str = "g") -> None:
    """Write the snapshot of a gang of which Kueue says these words, with the sentence that it gives now."""
    stage.until(lambda: words in stage.message(gang), f"{words!r} of {gang}")
    root, pods = stage.root(gang), stage.pods(gang)
    num_nodes = int(root.object["spec"]["completions"])
    seen = gather_evidence(stage.api, root, pods, num_nodes=num_nodes, facts=stage.facts)
    found = explain(seen)
    assert found is not None
    kept = {
        "recorded": True,
        "server": RELEASE,
        "now": seen.now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "num_nodes": num_nodes,
        "root": slim(root.object),
        "pods": [slim(pod) for pod in pods],
        "events": seen.events,
        "others": [slim(pod) for pod in seen.others],
        "nodes": seen.nodes,
        "workload": slim(seen.workload or {}),
        "topology_nodes": seen.topology_nodes,
        "expect": {key: getattr(found, key) for key in ("kind", "sentence", "final_after_seconds", "holder", "until")},
    }
    _write(SNAPSHOTS / f"kueue-0.19.2-{name}.json", kept)


def _labels(node: Body) -> Body:
    labels = {key: value for key, value in node["metadata"]["labels"].items() if key in (*LEVELS, HOST)}
    return {"metadata": {"name": node["metadata"]["name"], "labels": labels}}


def _without_programs(value: Any) -> Any:
    """The same without what containers run, their volumes and their environment, which no follower reads."""
    if isinstance(value, list):
        return [_without_programs(each) for each in value]
    if not isinstance(value, dict):
        return value
    if "containers" in value:
        containers = [{key: each[key] for key in PODS_CONTAINER if key in each} for each in value["containers"]]
        value = {key: each for key, each in value.items() if key != "volumes"} | {"containers": containers}
    return {key: each if key == "containers" else _without_programs(each) for key, each in value.items()}


def _write(path: Path, kept: dict[str, Any]) -> None:
    path.write_text(json.dumps(_without_programs(kept), indent=1, sort_keys=True, ensure_ascii=False) + "\n")
    print(f"  {path.name}", flush=True)


SCENES: tuple[Callable[[Stage], None], ...] = (admitted, two_pods_a_server, lost_server, admitted_again, waits)

if __name__ == "__main__":
    main(*sys.argv[1:])
