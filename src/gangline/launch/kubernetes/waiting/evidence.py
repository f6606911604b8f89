"""Evidence about a waiting gang: events, quotas, servers, queue; what this account may not read stays empty."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial

from gangline.errors import GanglineError
from gangline.launch.kubernetes.client.api import ApiForbidden, ApiUnavailable, KubernetesApi, Object
from gangline.launch.kubernetes.client.informer import trim_pod
from gangline.launch.kubernetes.cluster.facts import VOLCANO_VERSION, ClusterFacts, queues_path
from gangline.launch.kubernetes.objects.kueue import GROUP
from gangline.launch.kubernetes.objects.labels import DEADLINE, GANG, collection_path
from gangline.launch.kubernetes.objects.pod import VOLCANO_GROUP
from gangline.launch.kubernetes.placement.kueue_admission import kueue_version, read_workload
from gangline.launch.kubernetes.placement.servers import NODES
from gangline.launch.kubernetes.state.pods import is_ready, phase, pods_path
from gangline.launch.kubernetes.state.roots import Root
from gangline.launch.kubernetes.waiting import Snapshot, explain
from gangline.launch.kubernetes.waiting.kueue import read_topology_verdict
from gangline.launch.kubernetes.waiting.snapshot import event_time, read_time

_MAX_PODS_QUERIED = 4
"""Number of pods whose events are read, as those of one gang have the same cause."""
_HELD_BY_OTHERS = ("unschedulable", "scattered", "quota", "queue")
"""Kinds for which the pods of other gangs are read, to name the holders."""


def gather_evidence(
    api: KubernetesApi, root: Root, pods: list[Object], *, num_nodes: int, facts: ClusterFacts, deep: bool = True
) -> Snapshot:
    """Read the state of the cluster around a gang.

    Args:
        api: Of the gang.
        root: As last seen.
        pods: Of the gang, as last seen.
        num_nodes: Of the gang.
        facts: What the cluster serves.
        deep: Also read events, nodes and queues; a handful of requests.
    """
    seen = Snapshot(now=datetime.now(UTC), num_nodes=num_nodes, root=root.object, pods=pods)
    if not deep or root.outcome is not None:
        return seen
    workload = _workload(api, root, facts)
    idle = [pod for pod in pods if not is_ready(pod) and phase(pod) in ("Pending", "Running")][:_MAX_PODS_QUERIED]
    volcano = _volcano(api, idle, facts)
    about = [_by_uid(root.object), *map(_by_uid, idle)]
    about += [_by_uid(volcano.group)] if volcano.group else []
    seen = replace(
        seen,
        events=_events(api, about) + (_events_below(api, root) if len(pods) < num_nodes else []),
        nodes=_nodes(api, idle),
        workload=workload,
        pending=_pending(api, workload, facts),
        pod_group=volcano.group,
        volcano_queue=volcano.queue,
        denied=volcano.denied,
    )
    waiting = explain(seen)
    if waiting is not None and waiting.kind == "queue-inactive":
        return replace(seen, cluster_queue=_cluster_queue(api, workload, facts))
    if waiting is None or waiting.kind not in _HELD_BY_OTHERS:
        return seen
    if workload is not None and (verdict := read_topology_verdict(waiting.raw)) is not None:
        seen = replace(seen, topology_nodes=_topology_nodes(api, workload, facts, verdict.topology))
    return replace(seen, others=_others(api, root.object["metadata"]["name"]))


def _allowed(read: Callable[[], list[Object]]) -> list[Object]:
    """The objects; empty if this account may not read them or the server does not serve them."""
    try:
        return read()
    except ApiUnavailable:
        raise
    except GanglineError:
        return []


def _events(api: KubernetesApi, about: list[str]) -> list[Object]:
    path = collection_path("v1", "events", api.namespace)
    found: list[Object] = []
    for which in about:
        found += _allowed(partial(_listed, api, path, which))
    return found


def _by_uid(thing: Object) -> str:
    return f"involvedObject.uid={thing['metadata']['uid']}"


def _events_below(api: KubernetesApi, root: Root) -> list[Object]:
    """Events of the JobSet and the Job that controllers make for this root, which say why there are no pods.

    They are read by name, so those of an earlier gang of this name are left out.
    """
    made = read_time(root.object["metadata"].get("creationTimestamp")) or datetime.now(UTC)
    about = [f"involvedObject.name={name}" for name in {path.rpartition("/")[2] for path in root.lineage[1:]}]
    return [event for event in _events(api, about) if event_time(event, made) >= made]


def _listed(api: KubernetesApi, path: str, fields: str) -> list[Object]:
    return api.items(path, fields=fields)[0]


def _others(api: KubernetesApi, name: str) -> list[Object]:
    return _allowed(lambda: api.items(pods_path(api), labels=f"{GANG},{GANG}!={name}", keep=_trim_holder)[0])


def _trim_holder(pod: Object) -> Object:
    """Pod of `trim_pod`, with the time limit of its ranks, by which it ends."""
    trimmed = trim_pod(pod)
    whole = (pod.get("spec") or {}).get("containers") or ()
    for kept, each in zip(trimmed["spec"].get("containers") or (), whole, strict=True):
        kept["env"] = [given for given in each.get("env") or () if given.get("name") == DEADLINE]
    return trimmed


def _nodes(api: KubernetesApi, pods: list[Object]) -> list[Object]:
    """Nodes of the pods that have one."""
    names = sorted({name for pod in pods if (name := (pod.get("spec") or {}).get("nodeName"))})
    return _allowed(lambda: [node for name in names if (node := api.get(f"/api/v1/nodes/{name}")) is not None])


def _workload(api: KubernetesApi, root: Root, facts: ClusterFacts) -> Object | None:
    def read() -> list[Object]:
        workload = read_workload(api, root, facts)
        return [] if workload is None else [workload]

    return next(iter(_allowed(read)), None)


def _cluster_queue(api: KubernetesApi, workload: Object | None, facts: ClusterFacts) -> Object | None:
    """ClusterQueue of `workload`; one request, with the rights of `gangline-reader`."""
    name = facts.queues.get(str(((workload or {}).get("spec") or {}).get("queueName")))
    path = f"/apis/{GROUP}/{kueue_version(facts)}/clusterqueues/{name}"
    return next(iter(_allowed(lambda: [found] if name and (found := api.get(path)) else [])), None)


def _topology_nodes(api: KubernetesApi, workload: Object, facts: ClusterFacts, topology: str) -> list[Object] | None:
    """Nodes of the flavors of its queue that have this topology; None: this account may not read them."""
    groups = ((_cluster_queue(api, workload, facts) or {}).get("spec") or {}).get("resourceGroups") or ()
    path = f"/apis/{GROUP}/{kueue_version(facts)}/resourceflavors"
    nodes: dict[str, Object] = {}
    try:
        for name in sorted({flavor["name"] for group in groups for flavor in group["flavors"]}):
            flavor = (api.get(f"{path}/{name}") or {}).get("spec") or {}
            labels = ",".join(f"{key}={value}" for key, value in (flavor.get("nodeLabels") or {}).items())
            if flavor.get("topologyName") == topology:
                nodes |= {
                    node["metadata"]["name"]: node for node in api.items(NODES, labels=labels, keep=_trim_node)[0]
                }
    except ApiForbidden:
        return None
    return list(nodes.values()) or None


def _trim_node(node: Object) -> Object:
    """Its labels, and what pods may use of it."""
    allocatable = (node.get("status") or {}).get("allocatable")
    return {
        "metadata": {key: node["metadata"].get(key) for key in ("name", "labels")},
        "status": {"allocatable": allocatable},
    }


def _pending(api: KubernetesApi, workload: Object | None, facts: ClusterFacts) -> list[Object]:
    queue = ((workload or {}).get("spec") or {}).get("queueName")
    version = kueue_version(facts)
    if queue is None or version is None:
        return []
    path = f"/apis/visibility.{GROUP}/{version}/namespaces/{api.namespace}/localqueues/{queue}/pendingworkloads"
    found = _allowed(lambda: list((api.read(path) or {}).get("items") or ()))
    return sorted(found, key=lambda each: each.get("positionInLocalQueue", 0))


@dataclass(frozen=True, kw_only=True, slots=True)
class _Volcano:
    """What Volcano has of a gang, as a snapshot has it."""

    group: Object | None = None
    queue: Object | None = None
    denied: tuple[str, ...] = ()


def _volcano(api: KubernetesApi, pods: list[Object], facts: ClusterFacts) -> _Volcano:
    """PodGroup and queue of a gang whose pods name one; two requests, the second by the rights of the reader."""
    name = next((name for pod in pods if (name := (pod["metadata"].get("annotations") or {}).get(VOLCANO_GROUP))), "")
    if facts.volcano is None or not name:
        return _Volcano()
    group = _asked(lambda: api.get(f"{collection_path(VOLCANO_VERSION, 'podgroups', api.namespace)}/{name}"))
    if group is None:
        return _Volcano(denied=("pod_group",))
    wanted = (group.get("spec") or {}).get("queue")
    if not wanted:
        return _Volcano(group=group)
    fields = f"metadata.name={wanted}"
    queue = _asked(lambda: next(iter(_listed(api, queues_path(), fields)), None))
    return _Volcano(group=group, queue=queue, denied=("volcano_queue",) if queue is None else ())


def _asked(read: Callable[[], Object | None]) -> Object | None:
    """The object; empty: there is none; None: this account may not read it, or the server does not serve it."""
    try:
        return read() or {}
    except ApiUnavailable:
        raise
    except GanglineError:
        return None
