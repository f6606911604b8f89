"""Gangs that Kueue starts whole: what its queue is told, what it answered. Kueue alone suspends and unsuspends them.

Only counts can be wished for: so many consecutive pods in one domain. Which pod comes where is read back after the
admission, from the Workload that Kueue keeps beside each root.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from gangline.errors import ConfigError
from gangline.launch.kubernetes.api import Api, Object
from gangline.launch.kubernetes.facts import Facts
from gangline.launch.kubernetes.servers import HOSTNAME
from gangline.spec.placement import Placement, Server
from gangline.spec.podset import PodSet
from gangline.spec.site import LaunchTable

GROUP = "kueue.x-k8s.io"
QUEUE_NAME = f"{GROUP}/queue-name"
REQUIRED = f"{GROUP}/podset-required-topology"
PREFERRED = f"{GROUP}/podset-preferred-topology"
UNCONSTRAINED = f"{GROUP}/podset-unconstrained-topology"
SLICE_REQUIRED = f"{GROUP}/podset-slice-required-topology"
SLICE_SIZE = f"{GROUP}/podset-slice-size"
_VERSIONS = ("v1beta2", "v1beta1")
"""Newest first; they tell a topology assignment in two forms."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Wishes:
    root_labels: dict[str, str]
    """Written last: they put the root into its queue."""
    pod_annotations: dict[str, str] = field(default_factory=dict)
    """Of the pod template."""


def kueue_wishes(podset: PodSet, wish: Placement | None, launch: LaunchTable, facts: Facts) -> Wishes:
    """What Kueue is told of a gang.

    Priority goes by the pods' own class, so that no class of Kueue's needs to exist.

    Args:
        podset: Its queue goes before the site's.
        wish: Its `labels` name the topology level that consecutive pods should share, its `tile` how many of them must.
        launch: The site's queue.
        facts: Queues of the namespace; topologies of the cluster.

    Raises:
        ConfigError: There is no such queue, or none is named and there are several.
    """
    labels = {QUEUE_NAME: choose_queue(podset.queue or launch.queue, facts)}
    return Wishes(root_labels=labels, pod_annotations=_topology(podset, wish) if facts.topologies else {})


def choose_queue(wanted: str | None, facts: Facts) -> str:
    """The queue to wait in: the one that is wanted, else the only one."""
    known = ", ".join(sorted(facts.queues)) or "none at all"
    if wanted is None and len(facts.queues) == 1:
        return next(iter(facts.queues))
    if wanted is None:
        raise ConfigError(f"launch.queue: wanted the name of a queue, found none; this namespace has {known}")
    if wanted not in facts.queues:
        raise ConfigError(f"launch.queue: wanted a LocalQueue {wanted}, found no such one; this namespace has {known}")
    return wanted


def read_assignment(api: Api, name: str) -> Placement | None:
    """The servers that Kueue gave a gang, in node-rank order; None before its admission, or where it names none."""
    version = next((each for each in _VERSIONS if api.read(f"/apis/{GROUP}/{each}") is not None), None)
    if version is None:
        return None
    path = f"/apis/{GROUP}/{version}/namespaces/{api.namespace}/workloads"
    found = (each for each in api.items(path)[0] if _is_of(each, name))
    return next((placement for each in found if (placement := assignment(each)) is not None), None)


def assignment(workload: Object) -> Placement | None:
    """Pods of a Workload in the order of its domains, which Kueue sorts and fills by completion index."""
    sets = ((workload.get("status") or {}).get("admission") or {}).get("podSetAssignments") or ()
    told = next((each["topologyAssignment"] for each in sets if each.get("topologyAssignment")), None)
    if told is None or told["levels"][-1:] != [HOSTNAME]:
        return None
    servers = tuple(_server(values) for values, count in _domains(told) for _ in range(count))
    return Placement(servers=servers, devices_per_server=0, labels=tuple(told["levels"])) if servers else None


def demand_flavor(pods: Iterable[Object], node_labels: Mapping[str, str], *, flavor: str) -> None:
    """Admitted pods select the servers that they were counted on; a Kueue that speaks to another Trainer loses that.

    Raises:
        ConfigError: A pod lacks a label of the flavor: it may run where no quota counts it.
    """
    for pod in pods:
        selector = pod["spec"].get("nodeSelector") or {}
        lacking = {key: value for key, value in node_labels.items() if selector.get(key) != value}
        if lacking:
            raise ConfigError(
                f"pod {pod['metadata']['name']}: wanted the node selector {lacking} of flavor {flavor}, found "
                f'{selector or "none"}; this Kueue does not speak to this Trainer: launch.launcher = "job" works'
            )


def _topology(podset: PodSet, wish: Placement | None) -> dict[str, str]:
    level = wish.labels[0] if wish and wish.labels else None
    if level is None or podset.num_nodes == 1:
        return {UNCONSTRAINED: "true"}
    tile = wish.tile if wish else 1
    if tile == podset.num_nodes:
        return {REQUIRED: level}
    if tile > 1:
        _demand_divides(podset, tile)
        return {PREFERRED: level, SLICE_REQUIRED: level, SLICE_SIZE: str(tile)}
    return {PREFERRED: level}


def _demand_divides(podset: PodSet, tile: int) -> None:
    if podset.num_nodes % tile:
        raise ConfigError(f"gang {podset.name}: wanted a tile that divides {podset.num_nodes} pods, found {tile}")


def _is_of(workload: Object, name: str) -> bool:
    owners = workload["metadata"].get("ownerReferences") or ()
    return any(owner.get("name") == name and owner.get("controller") for owner in owners)


def _domains(told: Mapping[str, Any]) -> Iterator[tuple[list[str], int]]:
    """(value of each level, pods) of each domain, from either form."""
    for domain in told.get("domains") or ():
        yield list(domain["values"]), int(domain["count"])
    for part in told.get("slices") or ():
        number = int(part["domainCount"])
        levels = [_values(each, number) for each in part["valuesPerLevel"]]
        counts = part["podCounts"]
        pods = counts.get("individual") or [counts["universal"]] * number
        for place in range(number):
            yield [values[place] for values in levels], int(pods[place])


def _values(told: Mapping[str, Any], number: int) -> list[str]:
    if "universal" in told:
        return [str(told["universal"])] * number
    each = told["individual"]
    return [f"{each.get('prefix', '')}{root}{each.get('suffix', '')}" for root in each["roots"]]


def _server(values: list[str]) -> Server:
    """Host name, the level above it as the group, the one above that as the block."""
    block, group, name = ["", "", *values][-3:]
    return Server(name=name, group=group, block=block)
