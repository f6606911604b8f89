"""Opens the gates of pods: each gets its server and leaves the gate in one write, tested on what was read."""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

from gangline.launch.kubernetes.api.protocol import Api, Conflict, Object
from gangline.launch.kubernetes.objects.setting import HOSTNAME, PLACEMENT_GATE
from gangline.launch.kubernetes.placing.marked import PLACED
from gangline.launch.kubernetes.pods import pods_path

IN_FLIGHT = 16


def open_gates(
    api: Api, servers: Mapping[str, str], pods: Mapping[str, Object], *, nodes: Mapping[str, str], at: str
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


def _open(api: Api, pod: Object, server: str, node: str | None, at: str) -> bool:
    path = f"{pods_path(api)}/{pod['metadata']['name']}"
    try:
        return api.patch(path, gate_patch(pod, server, node, at), kind="json", bare=True) is not None
    except Conflict:
        return False
