"""Releases one gang of gated pods on a real API server: promise, unsuspend, wait for its pods, open all gates.

The servers are on paper, so no pod runs; API server, Job controller and scheduler are real. `KUBECONFIG` names the
cluster. Bound: 15 s from the first gate to the last at 2,048 pods; the other times are the cluster's own.
"""

import argparse
import json
import os
import secrets
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.cluster.processor_seconds import counted
from tests.cluster.placement.paper_servers import PODS, PaperServers
from tests.launch.kubernetes.gangs import CPU

from gangline.launch.kubernetes.client.api import KubernetesApi
from gangline.launch.kubernetes.client.client import KubernetesClient, connect
from gangline.launch.kubernetes.cluster.facts import ClusterFacts
from gangline.launch.kubernetes.objects.render import render
from gangline.launch.kubernetes.objects.render_context import RenderContext
from gangline.launch.kubernetes.placement import release
from gangline.launch.kubernetes.placement.placer import Placer
from gangline.spec.config.site import LaunchTable
from gangline.spec.gang.podset import Resources

PATIENCE_SECONDS = 900.0
release.BINDING_SECONDS = PATIENCE_SECONDS  # how long the Job controller takes is measured, not judged


def submit(api: KubernetesApi, name: str, num_pods: int, pool: str) -> None:
    podset = replace(
        CPU, name=name, run=name, num_nodes=num_pods, procs_per_node=1, secrets=(), pool=pool, deadline_seconds=None,
        resources=Resources(cpus=1, memory_bytes=10**6, shm_bytes=1),
    )  # fmt: skip
    context = RenderContext(
        podset=podset, namespace=api.namespace, pod=replace(PODS, account="default"),
        launch=LaunchTable(launcher="job"), facts=ClusterFacts(), route="gates", now=datetime.now(UTC),
    )  # fmt: skip
    rendered = render(context)
    api.create(rendered.root_path, rendered.root)
    api.patch(f"{rendered.root_path}/{name}", rendered.release)


def measure(api: KubernetesClient, servers: PaperServers, num_servers: int, pods_each: int) -> dict[str, object]:
    num_pods = num_servers * pods_each
    start = time.monotonic()
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda _: servers.add(1, cpus=pods_each), range(num_servers)))
    made = time.monotonic()
    submit(api, "g", num_pods, servers.pool)
    placer = Placer(api, holder="benchmark")
    found: dict[str, object] = {
        "servers": num_servers,
        "pods": num_pods,
        "load_average": os.getloadavg()[0],
        "servers_made_seconds": round(made - start, 2),
    }
    found["promise_seconds"] = seconds_until(placer, "promised")[1]
    spent: dict[str, float] = {}
    waited, opened = seconds_until(placer, "opened", spent)
    found |= {"pods_made_seconds": waited, "release_seconds": opened, "release_processor_seconds": spent}
    found["bound_seconds"] = round(sum(seconds_until(placer, "whole")), 2)
    ledger = api.get(f"/api/v1/namespaces/{api.namespace}/configmaps/gangline-ledger-{servers.pool}")
    found["ledger_bytes"] = sum(len(text) for text in (ledger or {}).get("data", {}).values())
    found["patches_of_pods"] = api.calls["patch", "pods"]
    return found


def seconds_until(placer: Placer, what: str, spent: dict[str, float] | None = None) -> tuple[float, float]:
    """Seconds before the step that does `what`, and those of that step: it reads what there is, then writes.

    `spent` gets the processor seconds of that step.
    """
    begin = time.monotonic()
    while True:
        start = time.monotonic()
        with counted({} if spent is None else spent):
            done = placer.step(datetime.now(UTC))
        if any(each.kind == what for each in done):
            return round(start - begin, 2), round(time.monotonic() - start, 2)
        if time.monotonic() - begin > PATIENCE_SECONDS:
            raise TimeoutError(f"the gang is not {what} after {PATIENCE_SECONDS:.0f} s")
        time.sleep(1.0)


def clear(api: KubernetesClient, servers: PaperServers) -> None:
    """The namespace and its pods, which no kubelet ends, then the servers."""
    api.delete(f"/apis/batch/v1/namespaces/{api.namespace}/jobs/g", propagation="Orphan")
    pods = f"/api/v1/namespaces/{api.namespace}/pods"
    with ThreadPoolExecutor(16) as pool:
        names = [each["metadata"]["name"] for each in api.items(pods)[0]]
        list(pool.map(lambda name: api.patch(f"{pods}/{name}", {"metadata": {"finalizers": None}}), names))
        list(pool.map(lambda name: api.delete(f"{pods}/{name}", grace_seconds=0), names))
        list(pool.map(servers.remove, list(servers.names)))
    api.delete(f"/api/v1/namespaces/{api.namespace}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--servers", type=int, default=2048)
    parser.add_argument("--pods-each", type=int, default=1)
    asked = parser.parse_args()
    api = connect(os.environ, namespace=f"gangline-release-{secrets.token_hex(3)}")
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": api.namespace}}
    api.create("/api/v1/namespaces", body)
    servers = PaperServers(api)
    try:
        print(json.dumps(measure(api, servers, asked.servers, asked.pods_each), indent=1))
    finally:
        clear(api, servers)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
