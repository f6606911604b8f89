"""Pods of one gang by node rank, as the placer reads them, and their binding to servers.

A gated pod gets its server and loses its scheduling gate in one write, tested on what was read.
"""

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from gangline.launch.kubernetes.client.api import ApiConflict, KubernetesApi, Object
from gangline.launch.kubernetes.objects.labels import HOSTNAME, PLACEMENT_GATE
from gangline.launch.kubernetes.placement.queued_gangs import PLACED
from gangline.launch.kubernetes.state.pods import is_living, node_rank, phase, pods_path, true_condition


@dataclass(frozen=True, slots=True)
class GangPods:
    """Pods of one gang by node rank."""

    living: dict[int, Object] = field(default_factory=dict)
    succeeded: frozenset[int] = frozenset()

    @property
    def gated(self) -> dict[int, Object]:
        """Pods whose scheduling gate is closed."""
        return {rank: pod for rank, pod in self.living.items() if _is_gated(pod)}

    @property
    def unbound(self) -> dict[int, Object]:
        """Pods with an open gate that have no server yet."""
        return {rank: pod for rank, pod in self.living.items() if not _is_gated(pod) and not is_bound(pod)}

    @property
    def were_let_go(self) -> bool:
        """Whether some gates are open, which is the case only after all pods existed."""
        return len(self.gated) < len(self.living)

    @property
    def replacements(self) -> frozenset[int]:
        """Ranks whose pod was created after another was bound, so after all gates were open (server time)."""
        first = min((time for pod in self.living.values() if (time := _bound_at(pod))), default=None)
        made = {rank: pod["metadata"].get("creationTimestamp", "") for rank, pod in self.living.items()}
        return frozenset(rank for rank, time in made.items() if first is not None and time > first)

    def missing(self, num_pods: int) -> int:
        """Number of pods that neither run nor have succeeded."""
        return num_pods - len(self.living.keys() | self.succeeded)


def by_rank(pods: Iterable[Object], num_pods: int) -> GangPods:
    """The pods with a rank below `num_pods`; others that carry the gang's label are ignored."""
    found = [pod for pod in pods if node_rank(pod) < num_pods]
    living = {node_rank(pod): pod for pod in found if is_living(pod)}
    return GangPods(living, frozenset(node_rank(pod) for pod in found if phase(pod) == "Succeeded"))


def is_bound(pod: Object) -> bool:
    """Whether the pod has a server."""
    return bool(pod["spec"].get("nodeName"))


def _is_gated(pod: Object) -> bool:
    return any(gate.get("name") == PLACEMENT_GATE for gate in pod["spec"].get("schedulingGates") or ())


def _bound_at(pod: Object) -> str | None:
    bound = true_condition(pod, "PodScheduled") if is_bound(pod) else None
    return bound.get("lastTransitionTime") if bound else None


_IN_FLIGHT = 16


def open_gates(
    api: KubernetesApi, servers: Mapping[str, str], pods: Mapping[str, Object], *, nodes: Mapping[str, str], at: str
) -> int:
    """Open the gate of each pod and bind it to its server; returns how many were written.

    A pod that changed or disappeared since it was read is left for the next step.

    Args:
        api: Shared among threads.
        servers: Host name by pod name.
        pods: Pods as read, by name.
        nodes: Names of node objects by host name, as far as known.
        at: Time of the opening, stored on the pod.

    Raises:
        ApiUnavailable: The outcome is unknown for some pods; all others were written.
    """
    if len(servers) <= 1:
        return sum(_open(api, pods[name], server, nodes.get(server), at) for name, server in servers.items())
    with ThreadPoolExecutor(min(_IN_FLIGHT, len(servers)), thread_name_prefix="gate") as pool:
        sent = [pool.submit(_open, api, pods[name], server, nodes.get(server), at) for name, server in servers.items()]
    return sum(future.result() for future in sent)


def _gate_patch(pod: Object, server: str, node: str | None, at: str) -> list[Object]:
    """JSON patch that binds `pod` to `server` and opens its gate; a gated pod's selector may only gain.

    The host name binds the pod. With the name of the node object as well, set if the pod has no affinity of its own,
    the scheduler examines that node only. Clearing the managed fields saves a fifth of the server's work.
    """
    spec, metadata = pod["spec"], pod["metadata"]
    gates = [gate for gate in spec["schedulingGates"] if gate["name"] != PLACEMENT_GATE]
    return [
        {"op": "test", "path": "/metadata/resourceVersion", "value": metadata["resourceVersion"]},
        _put("/spec/nodeSelector", spec.get("nodeSelector"), HOSTNAME, server),
        _put("/metadata/annotations", metadata.get("annotations"), PLACED, at),
        {"op": "replace", "path": "/spec/schedulingGates", "value": gates},
        {"op": "add", "path": "/metadata/managedFields", "value": [{}]},
        *([] if node is None or spec.get("affinity") else [_aimed_at(node)]),
    ]


def _aimed_at(node: str) -> Object:
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    terms = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    value = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    return {"op": "add", "path": "/spec/affinity", "value": value}


def _put(path: str, there: Mapping[str, str] | None, key: str, value: str) -> Object:
    if not there:
        return {"op": "add", "path": path, "value": {key: value}}
    return {"op": "add", "path": f"{path}/{key.replace('~', '~0').replace('/', '~1')}", "value": value}


def _open(api: KubernetesApi, pod: Object, server: str, node: str | None, at: str) -> bool:
    path = f"{pods_path(api)}/{pod['metadata']['name']}"
    try:
        return api.patch(path, _gate_patch(pod, server, node, at), kind="json", bare=True) is not None
    except ApiConflict:
        return False
