"""Servers on paper: nodes that a real API server and scheduler know, with nobody behind them.

`tick` does what their kubelets would: bound pods run, pods that are deleted go. Pods must bear what the cluster says of
nodes that never speak; `PODS` does. The label of a pool keeps everybody else away.
"""

import secrets
from datetime import UTC, datetime

from gangline.launch.kubernetes.client.api import ApiConflict, KubernetesApi
from gangline.spec.config.site import PodTable

SILENT = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
PODS = PodTable(cpus=1, memory_bytes=1e6, shm_bytes=0, disk_bytes=1e6, tolerate=SILENT)


class PaperServers:
    def __init__(self, api: KubernetesApi) -> None:
        self._api = api
        self.pool = f"paper-{secrets.token_hex(3)}"
        self.names: list[str] = []
        self._made = 0

    def add(self, number: int, *, cpus: int = 1, group: str = "", gpu: str = "") -> list[str]:
        """Names of `number` more servers, of this group, labelled with this kind of GPU."""
        made = [f"{self.pool}-{self._made + each}" for each in range(number)]
        self._made += number
        for name in made:
            labels = {"kubernetes.io/hostname": name, "gangline/pool": self.pool}
            labels |= {"gangline/fabric-group": group} if group else {}
            labels |= {"nvidia.com/gpu.product": gpu} if gpu else {}
            body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}}
            self._api.create("/api/v1/nodes", body)
            self.names.append(name)
            self._api.patch(f"/api/v1/nodes/{name}/status", {"status": _status(cpus)})
        return made

    def tick(self) -> None:
        for pod in self.pods():
            path = f"/api/v1/namespaces/{self._api.namespace}/pods/{pod['metadata']['name']}"
            if pod["metadata"].get("deletionTimestamp"):
                self._api.delete(path, grace_seconds=0)
            elif pod["status"].get("phase") == "Pending":
                self.say(pod, {"phase": "Running"})

    def pods(self) -> list[dict]:
        """Those that are bound to one of them."""
        everyone = self._api.items(f"/api/v1/namespaces/{self._api.namespace}/pods")[0]
        return [pod for pod in everyone if pod["spec"].get("nodeName") in self.names]

    def evict(self, pod: dict) -> None:
        """As a drain does it: the pod failed, and not by its own fault."""
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        condition = {"type": "DisruptionTarget", "status": "True", "reason": "Test", "lastTransitionTime": now}
        self.say(pod, {"phase": "Failed", "conditions": [*pod["status"].get("conditions", ()), condition]})

    def say(self, pod: dict, status: dict) -> None:
        path = f"/api/v1/namespaces/{self._api.namespace}/pods/{pod['metadata']['name']}/status"
        try:
            self._api.patch(path, {"status": status})
        except ApiConflict:
            return  # somebody else wrote; the next tick says it again

    def remove(self, name: str) -> None:
        self._api.delete(f"/api/v1/nodes/{name}")
        self.names.remove(name)

    def remove_all(self) -> None:
        for name in list(self.names):
            self.remove(name)


def _status(cpus: int) -> dict:
    room = {"cpu": str(cpus), "memory": "1Gi", "pods": "110", "ephemeral-storage": "100Gi"}
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    ready = {"type": "Ready", "status": "True", "reason": "OnPaper", "message": "", "lastHeartbeatTime": now,
             "lastTransitionTime": now}  # fmt: skip
    return {"capacity": room, "allocatable": room, "conditions": [ready]}
