"""`FakeKubelet`: what nodes do to pods, at the word of a test. Binds, runs, ends, evicts; finishes deletions."""

from collections.abc import Callable, Sequence
from typing import Any

from tests.cluster.fake.server import FakeServer
from tests.cluster.fake.writes import stamp

Object = dict[str, Any]


class FakeKubelet:
    """Nodes named `nodes`, made at once with room for `gpus` GPUs each.

    `step` binds what has no gate and runs it; `auto` off, it only finishes deletions and the test calls the rest.
    """

    def __init__(
        self, server: FakeServer, *, nodes: Sequence[str] = ("node-a",), gpus: int = 8, auto: bool = True
    ) -> None:
        self.server = server
        self.auto = auto
        self.can_run: Callable[[Object], bool] = lambda pod: True
        self.nodes = tuple(nodes)
        for each in self.nodes:
            self._add_node(each, gpus)

    def step(self) -> int:
        """One round over all pods; returns how many it moved."""
        moved = 0
        for pod in self._pods():
            if "deletionTimestamp" in pod["metadata"]:
                moved += self._finish(pod)
            elif self.auto and pod["status"]["phase"] == "Pending" and self._is_free(pod):
                self.run(pod["metadata"]["name"], namespace=pod["metadata"]["namespace"])
                moved += 1
        return moved

    def bind(self, name: str, node: str | None = None, *, namespace: str = "gangs") -> None:
        def change(pod: Object) -> None:
            wanted = (pod["spec"].get("nodeSelector") or {}).get("kubernetes.io/hostname")
            pod["spec"]["nodeName"] = node or wanted or self.nodes[0]
            _condition(pod, "PodScheduled", "True")

        self._change(name, namespace, change)

    def run(self, name: str, *, ready: bool = True, node: str | None = None, namespace: str = "gangs") -> None:
        """Bind where that has not happened, then all containers run."""
        pod = self._pod(name, namespace)
        if not pod["spec"].get("nodeName"):
            self.bind(name, node, namespace=namespace)
        now = stamp(self.server.now())

        def change(pod: Object) -> None:
            pod["status"] |= {"phase": "Running", "startTime": now, "podIP": "10.1.0.9", "hostIP": "10.0.0.1"}
            _containers(pod, {"running": {"startedAt": now}}, ready=ready)
            _condition(pod, "Ready", "True" if ready else "False")

        self._change(name, namespace, change)

    def wait(self, name: str, reason: str, message: str = "", *, namespace: str = "gangs") -> None:
        """Its containers wait: ImagePullBackOff, CreateContainerConfigError, ..."""
        self._change(
            name,
            namespace,
            lambda pod: _containers(pod, {"waiting": {"reason": reason, "message": message}}, ready=False),
        )

    def unschedulable(self, name: str, message: str, *, namespace: str = "gangs") -> None:
        self._change(
            name,
            namespace,
            lambda pod: _condition(pod, "PodScheduled", "False", reason="Unschedulable", message=message),
        )

    def end(
        self, name: str, exit_code: int, *, message: str = "", reason: str | None = None, namespace: str = "gangs"
    ) -> None:
        """All containers end with `exit_code` and the termination message `message`."""
        now = stamp(self.server.now())
        ended = {
            "exitCode": exit_code,
            "reason": reason or ("Completed" if exit_code == 0 else "Error"),
            "message": message,
            "startedAt": now,
            "finishedAt": now,
        }

        def change(pod: Object) -> None:
            pod["status"]["phase"] = "Succeeded" if exit_code == 0 else "Failed"
            _containers(pod, {"terminated": ended}, ready=False)
            _condition(pod, "Ready", "False")

        self._change(name, namespace, change)

    def evict(self, name: str, *, reason: str = "EvictionByEvictionAPI", namespace: str = "gangs") -> None:
        """The platform takes the pod: DisruptionTarget, SIGTERM; its object goes, too, unless its own node did it
        (reason TerminationByKubelet)."""

        def change(pod: Object) -> None:
            _condition(pod, "DisruptionTarget", "True", reason=reason)
            if reason != "TerminationByKubelet":
                pod["metadata"] |= {"deletionTimestamp": stamp(self.server.now()), "deletionGracePeriodSeconds": 30}

        self._change(name, namespace, change)
        self.end(name, 143, namespace=namespace)

    def vanish(self, name: str, *, namespace: str = "gangs") -> None:
        """Deleted by force, by anybody."""
        self.server.store.remove(("pods", namespace, name))

    def _finish(self, pod: Object) -> int:
        """A pod that is marked ends by SIGTERM, then its object goes if nobody holds it."""
        name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
        if pod["status"]["phase"] in ("Pending", "Running") and pod["spec"].get("nodeName"):
            self.end(name, 143, namespace=namespace)
        if not pod["metadata"].get("deletionGracePeriodSeconds"):
            return 0
        self._change(name, namespace, lambda each: each["metadata"].update(deletionGracePeriodSeconds=0))
        return 1

    def _is_free(self, pod: Object) -> bool:
        return not pod["spec"].get("schedulingGates") and self.can_run(pod)

    def _pods(self) -> list[Object]:
        return list(self.server.store.all_of(self.server.kind("pods"), ""))

    def _pod(self, name: str, namespace: str) -> Object:
        pod = self.server.store.get(("pods", namespace, name))
        assert pod is not None, f"no pod {namespace}/{name}"
        return pod

    def _change(self, name: str, namespace: str, change: Callable[[Object], object]) -> None:
        with self.server.store.changed:
            pod = self._pod(name, namespace)
            change(pod)
            self.server.write(("pods", namespace, name), pod)

    def _add_node(self, name: str, gpus: int) -> None:
        room = {"cpu": "64", "memory": "512Gi", "nvidia.com/gpu": str(gpus), "pods": "110"}
        body: Object = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "uid": f"node-{name}", "labels": {"kubernetes.io/hostname": name}},
            "spec": {},
            "status": {
                "capacity": room,
                "allocatable": room,
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        }
        self.server.write(("nodes", "", name), body)


def _condition(body: Object, kind: str, status: str, **more: str) -> None:
    conditions = body["status"].setdefault("conditions", [])
    conditions[:] = [each for each in conditions if each["type"] != kind]
    conditions.append({"type": kind, "status": status, **more})


def _containers(pod: Object, state: Object, *, ready: bool) -> None:
    pod["status"]["containerStatuses"] = [
        {"name": each["name"], "image": each["image"], "ready": ready, "restartCount": 0, "state": state}
        for each in pod["spec"]["containers"]
    ]
