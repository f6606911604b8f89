"""Records what a real Kueue writes about gangs: `python -m tests.cluster.placement.record_kueue [NAME...]`.

Puts gangs on the servers of `kueue_stage` in the project's own cluster, and keeps what a follower reads of them:
admissions in `tests/launch/kubernetes/placement/kueue`, waits in `tests/launch/kubernetes/waiting/snapshots`.
"""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

from tests.cluster.cluster import Cluster, open_cluster
from tests.cluster.placement.kueue_stage import KUEUE, NAMESPACE, QUEUE, Body, Stage, thing
from tests.launch.kubernetes.placement.recorded import WORKLOADS
from tests.launch.kubernetes.waiting.seen import SNAPSHOTS

from gangline.launch.kubernetes.waiting.evidence import gather_evidence

RELEASE = "0.19.2"
TAINT = {"key": "gangline/pool", "value": "gpus", "effect": "NoSchedule"}


def main(*only: str) -> None:
    with _stage() as stage:
        for scene in SCENES:
            if not only or scene.__name__.replace("_", "-") in only:
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
    """A server of the gang dies, and Kueue gives the gang another one."""
    stage.open_queue()
    stage.submit("g", 3)
    stage.until_running("g", 3)
    keep_admission(stage, "before-a-server-is-lost")
    lost = next(pod["spec"]["nodeName"] for pod in stage.pods("g") if pod["spec"]["nodeName"])
    stage.lose_server(lost)
    stage.until(lambda: lost not in {p["spec"].get("nodeName") for p in stage.pods("g")}, f"leaving {lost}")
    stage.until_running("g", 3)
    keep_admission(stage, "after-a-server-is-lost")


def admitted_again(stage: Stage) -> None:
    """A gang whose evicted pod stays listed is preempted, and admitted again on another flavor."""
    labels = {"first": {"gangline/paper": "yes"}, "second": {"gangline/paper": "yes", "kubernetes.io/os": "linux"}}
    for name in ("gangline-3", "gangline-4"):
        stage.api.patch(f"/api/v1/nodes/{name}", {"metadata": {"labels": {"kubernetes.io/os": "linux"}}})
    stage.open_queue({name: {"nodeLabels": each} for name, each in labels.items()}, quotas={"cpu": "4", "memory": "8Gi"})
    ...


SCENES: tuple[Callable[[Stage], None], ...] = (admitted, two_pods_a_server, lost_server, admitted_again)
