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
    living: dict[int, Object] = field(default_factory=dict)
    succeeded: frozenset[int] = frozenset()

    @property
    def gated(self) -> dict[int, Object]:
        return {rank: pod for rank, pod in self.living.items() if is_gated(pod)}

    @property
    def unbound(self) -> dict[int, Object]:
        """Released, but on no server yet."""
        return {rank: pod for rank, pod in self.living.items() if not is_gated(pod) and not is_bound(pod)}

    @property
    def were_let_go(self) -> bool:
        """Some gates are open; they open only once all pods exist."""
        return len(self.gated) < len(self.living)

    @property
    def replacements(self) -> frozenset[int]:
        """Made after another was bound, hence after all gates were open. By the cluster's own clock."""
        first = min((time for pod in self.living.values() if (time := _bound_at(pod))), default=None)
        made = {rank: pod["metadata"].get("creationTimestamp", "") for rank, pod in self.living.items()}
        return frozenset(rank for rank, time in made.items() if first is not None and time > first)

    def missing(self, num_pods: int) -> int:
        return num_pods - len(self.living.keys() | self.succeeded)


def by_rank(pods: Iterable[Object], num_pods: int) -> GangPods:
    """Those of the ranks below `num_pods`: what else bears the gang's label is none of it."""
    found = [pod for pod in pods if node_rank(pod) < num_pods]
    living = {node_rank(pod): pod for pod in found if is_living(pod)}
    return GangPods(living, frozenset(node_rank(pod) for pod in found if phase(pod) == "Succeeded"))


def is_bound(pod: Object) -> bool:
    return bool(pod["spec"].get("nodeName"))


def is_gated(pod: Object) -> bool:
    return any(gate.get("name") == PLACEMENT_GATE for gate in pod["spec"].get("schedulingGates") or ())


def _bound_at(pod: Object) -> str | None:
    bound = true_condition(pod, "PodScheduled") if is_bound(pod) else None
    return bound.get("lastTransitionTime") if bound else None


IN_FLIGHT = 16


def open_gates(
    api: KubernetesApi, servers: Mapping[str, str], pods: Mapping[str, Object], *, nodes: Mapping[str, str], at: str
) -> int:
    """Send each gated pod to its server; how many went.

    A pod that changed or vanished since it was read stays for the next step.

    Args:
        api: Safe to share among threads.
        servers: Host name by pod name.
        pods: As they were read, by name.
        nodes: Node objects by host name, as far as they are known.
        at: Time of the opening, kept on the pod.

    Raises:
        Away: Of some pods it is not known; all others were sent.
    """
    if len(servers) <= 1:
        return sum(_open(api, pods[name], server, nodes.get(server), at) for name, server in servers.items())
    with ThreadPoolExecutor(min(IN_FLIGHT, len(servers)), thread_name_prefix="gate") as pool:
        sent = [pool.submit(_open, api, pods[name], server, nodes.get(server), at) for name, server in servers.items()]
    return sum(each.result() for each in sent)


def gate_patch(pod: Object, server: str, node: str | None, at: str) -> list[Object]:
    """JSON patch that binds `pod` to `server` and opens its gate; a gated pod's selector may only gain.

    The host name is what binds. A scheduler looks for it on every node; told the node object's name as well, where the
    pod has no affinity of its own, it looks at that one alone. And the server is told to forget who wrote which field:
    keeping that book is a fifth of its work, for a pod that nobody applies to.
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
        return api.patch(path, gate_patch(pod, server, node, at), kind="json", bare=True) is not None
    except ApiConflict:
        return False
