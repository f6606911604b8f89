"""Servers on paper in two racks, with a real Kueue and a queue over them: what `record` puts its gangs on."""

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from tests.cluster import tenant
from tests.cluster.cluster import Cluster
from tests.cluster.rig.kubectl import Kubectl
from tests.launch.kubernetes.gangs import CPU

from gangline.errors import GanglineError
from gangline.launch.kubernetes.client.client import connect
from gangline.launch.kubernetes.cluster.facts import ClusterFacts, read_facts
from gangline.launch.kubernetes.launcher import KubernetesLauncher
from gangline.launch.kubernetes.state.pods import list_pods
from gangline.launch.kubernetes.state.roots import JOB, Root
from gangline.spec.config.site import LaunchTable, PodTable
from gangline.spec.gang.podset import Placement, Resources

NAMESPACE, QUEUE, CLUSTER_QUEUE, TOPOLOGY = "gangs", "gangs", "gpus", "net"
LEVELS = ("cloud.provider.com/topology-zone", "cloud.provider.com/topology-block", "cloud.provider.com/topology-rack")
HOST = "kubernetes.io/hostname"
RACKS = {"gangline-1": "r1", "gangline-2": "r2", "gangline-3": "r1", "gangline-4": "r2"}
SILENT = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
KUEUE = "kueue.x-k8s.io/v1beta2"
_PATIENCE_SECONDS = 90.0
Body = dict[str, Any]


class Stage:
    """The servers, their kubelet on paper, and one queue."""

    def __init__(self, cluster: Cluster) -> None:
        self.kubectl: Kubectl = cluster.kubectl
        self.api = connect({"KUBECONFIG": str(cluster.kubeconfig)}, namespace=NAMESPACE)
        self.kubectl.apply(tenant.objects(NAMESPACE))
        self._ready: set[str] = set()
        self._over = threading.Event()
        self._kubelet = threading.Thread(target=self._run, daemon=True)
        for name, rack in RACKS.items():
            self.add_server(name, rack)
        self._kubelet.start()

    def close(self) -> None:
        self.clear()
        self._over.set()
        self._kubelet.join()
        for name in list(self._ready):
            self.remove_server(name)
        self.kubectl.run("delete", "namespace", NAMESPACE, "--ignore-not-found", "--timeout=60s")

    def add_server(self, name: str, rack: str) -> None:
        levels = dict(zip(LEVELS, ("z1", "b1", rack), strict=True))
        labels = {HOST: name, "gangline/paper": "yes", "gangline/second": "yes", **levels}
        self.api.create(
            "/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}}
        )
        self._ready.add(name)
        self._beat(name)

    def remove_server(self, name: str) -> None:
        self._ready.discard(name)
        self.api.delete(f"/api/v1/nodes/{name}")

    def taint(self, name: str, taint: Body) -> None:
        """One taint, in place of all."""
        self.api.patch(f"/api/v1/nodes/{name}", {"spec": {"taints": [taint]}})

    def deactivate(self, name: str) -> None:
        """What `spec.active: false` by hand does to a gang."""
        workload = self.workload(name)
        assert workload is not None
        path = f"/apis/{KUEUE}/namespaces/{NAMESPACE}/workloads/{workload['metadata']['name']}"
        self.api.patch(path, {"spec": {"active": False}})

    def open_queue(
        self, flavors: dict[str, Body] | None = None, *, quotas: dict[str, str] | None = None, **cluster_queue: Any
    ) -> None:
        """`flavors`: spec of each ResourceFlavor by name; `quotas`: by resource, in each of them."""
        specs = flavors or {"first": {}}
        plain = {"nodeLabels": {"gangline/paper": "yes"}, "topologyName": TOPOLOGY}
        made = [thing("ResourceFlavor", name, plain | spec) for name, spec in specs.items()]
        levels = [{"nodeLabel": label} for label in (*LEVELS, HOST)]
        covered = quotas or {"cpu": "100", "memory": "100Gi", "nvidia.com/gpu": "100"}
        resources = [{"name": name, "nominalQuota": amount} for name, amount in covered.items()]
        spec = {
            "namespaceSelector": {},
            "preemption": {"withinClusterQueue": "LowerPriority"},
            "resourceGroups": [
                {
                    "coveredResources": list(covered),
                    "flavors": [{"name": name, "resources": resources} for name in specs],
                }
            ],
        } | cluster_queue
        self.kubectl.apply([thing("Topology", TOPOLOGY, {"levels": levels}), *made])
        self.kubectl.apply([thing("ClusterQueue", CLUSTER_QUEUE, spec)])
        self.kubectl.apply([thing("LocalQueue", QUEUE, {"clusterQueue": CLUSTER_QUEUE}, namespace=NAMESPACE)])

    def submit(
        self,
        name: str,
        num_pods: int,
        *,
        cpus: float = 2,
        gpus: int = 0,
        tile: int = 1,
        priority: Any = "normal",
        **more: Any,
    ) -> None:
        podset = replace(
            CPU, name=name, run=name, num_nodes=num_pods, procs_per_node=1, secrets=(), deadline_seconds=None,
            resources=Resources(cpus=cpus, memory_bytes=10**6, shm_bytes=1, gpus=gpus), priority=priority,
            placement=Placement(tile=tile), **more,
        )  # fmt: skip
        pod = PodTable(memory_bytes=1e6, shm_bytes=0, disk_bytes=1e6, tolerate=SILENT)
        launch = LaunchTable(target="kubernetes", launcher="job", namespace=NAMESPACE, queue=QUEUE)
        KubernetesLauncher(self.api, facts=self.facts, launch=launch, pod=pod, secrets=lambda _: b"").submit(podset)

    @property
    def facts(self) -> ClusterFacts:
        return read_facts(self.api)

    def root(self, name: str) -> Root:
        path = JOB.path(NAMESPACE, name)
        found = self.api.get(path)
        assert found is not None
        return Root(path, found)

    def pods(self, name: str) -> list[Body]:
        return list_pods(self.api, name)

    def workload(self, name: str, version: str = KUEUE) -> Body | None:
        path = f"/apis/{version}/namespaces/{NAMESPACE}/workloads"
        found, _ = self.api.items(path, labels=f"kueue.x-k8s.io/job-uid={self.root(name).uid}")
        return found[0] if found else None

    def message(self, name: str, kind: str = "QuotaReserved") -> str:
        """Message of a condition of its Workload; empty: it has none."""
        conditions = ((self.workload(name) or {}).get("status") or {}).get("conditions") or ()
        return next((str(each.get("message")) for each in conditions if each["type"] == kind), "")

    def until(self, holds: Callable[[], object], what: str) -> None:
        end = time.monotonic() + _PATIENCE_SECONDS
        while not holds():
            assert time.monotonic() < end, f"{what} did not come about"
            time.sleep(0.3)

    def until_running(self, name: str, num_pods: int) -> None:
        def run() -> bool:
            return sum(pod["status"].get("phase") == "Running" for pod in self.pods(name)) == num_pods

        self.until(run, f"{num_pods} running pods of {name}")

    def evict(self, pod: Body) -> None:
        """As a kubelet does it that is short of memory: the pod has failed, and stays listed."""
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        why = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "TerminationByKubelet",
            "lastTransitionTime": now,
        }
        status = {"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory."}
        self._say(pod, status | {"conditions": [*pod["status"].get("conditions", ()), why]})

    def clear_gangs(self) -> None:
        self.kubectl.run("delete", "jobs", "--all", "-n", NAMESPACE, "--timeout=60s")
        self.until(lambda: not self.api.items(f"/api/v1/namespaces/{NAMESPACE}/pods")[0], "no pods")

    def clear(self) -> None:
        """No gang, no queue."""
        self.clear_gangs()
        self.kubectl.run("delete", "localqueues,workloads", "--all", "-n", NAMESPACE, "--timeout=60s")
        self.kubectl.run("delete", "clusterqueues,resourceflavors,topologies", "--all", "--timeout=60s")

    def _run(self) -> None:
        beaten = float("-inf")
        while not self._over.wait(0.3):
            try:
                if time.monotonic() - beaten > 8:
                    beaten = time.monotonic()
                    for name in list(self._ready):
                        self._beat(name)
                self._tick()
            except GanglineError as error:
                print(f"kubelet on paper: {error}", flush=True)

    def _tick(self) -> None:
        for pod in self.api.items(f"/api/v1/namespaces/{NAMESPACE}/pods")[0]:
            path = f"/api/v1/namespaces/{NAMESPACE}/pods/{pod['metadata']['name']}"
            if pod["metadata"].get("deletionTimestamp"):
                self.api.delete(path, grace_seconds=0)
            elif pod["status"].get("phase") == "Pending" and pod["spec"].get("nodeName"):
                now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
                ready = {"type": "Ready", "status": "True", "lastTransitionTime": now}
                self._say(pod, {"phase": "Running", "conditions": [*pod["status"].get("conditions", ()), ready]})

    def _say(self, pod: Body, status: Body) -> None:
        path = f"/api/v1/namespaces/{NAMESPACE}/pods/{pod['metadata']['name']}/status"
        self.api.patch(path, {"status": status})

    def _beat(self, name: str) -> None:
        room = {"cpu": "2", "memory": "8Gi", "pods": "110", "ephemeral-storage": "100Gi"}
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        ready = {"type": "Ready", "status": "True", "reason": "OnPaper", "message": "", "lastHeartbeatTime": now}
        status = {"capacity": room, "allocatable": room, "conditions": [ready | {"lastTransitionTime": now}]}
        self.api.patch(f"/api/v1/nodes/{name}/status", {"status": status})


def thing(kind: str, name: str, spec: Body, *, namespace: str | None = None) -> Body:
    """An object of Kueue."""
    place = {} if namespace is None else {"namespace": namespace}
    return {"apiVersion": KUEUE, "kind": kind, "metadata": {"name": name, **place}, "spec": spec}
