"""What Kueue answered a gang: the Workload that it keeps beside each root. Reads; changes nothing.

Where it knows a topology it names the server of each pod, in node-rank order; and it names the flavors on whose quota
the pods count, whose labels they all select.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from gangline.launch.kubernetes.api.facts import Facts
from gangline.launch.kubernetes.api.protocol import Api, Object
from gangline.launch.kubernetes.objects.setting import HOSTNAME, collection
from gangline.launch.kubernetes.placing.kueue import GROUP, QUEUE_NAME
from gangline.launch.kubernetes.pods import true_condition
from gangline.launch.kubernetes.roots import Root
from gangline.spec.placement import Placement, Server

_VERSIONS = ("v1beta2", "v1beta1")
"""Newest first; they tell a topology assignment in two forms, and all else alike."""


def kueue_version(facts: Facts) -> str | None:
    """The newest that the cluster serves."""
    return next((each for each in _VERSIONS if f"{GROUP}/{each}/workloads" in facts.served), None)


def is_queued(root: Root) -> bool:
    """Kueue has `root` in a queue: it alone suspends it."""
    return QUEUE_NAME in (root.object["metadata"].get("labels") or {})


def read_workload(api: Api, root: Root, facts: Facts) -> Object | None:
    """None: Kueue is not there, or has not come to it."""
    version = kueue_version(facts)
    if version is None:
        return None
    path = collection(f"{GROUP}/{version}", "workloads", api.namespace)
    found, _ = api.items(path, labels=f"{GROUP}/job-uid={root.uid}")
    return found[0] if found else None


def read_flavor_labels(api: Api, workload: Object, facts: Facts) -> dict[str, str]:
    """Labels of the servers that the pods of `workload` are counted on. Raises `Denied`."""
    labels: dict[str, str] = {}
    for name in sorted({flavor for each in _assigned(workload) for flavor in (each.get("flavors") or {}).values()}):
        found = api.get(f"/apis/{GROUP}/{kueue_version(facts)}/resourceflavors/{name}") or {}
        labels |= (found.get("spec") or {}).get("nodeLabels") or {}
    return labels


def is_admitted(workload: Object) -> bool:
    return true_condition(workload, "Admitted") is not None


def assignment(workload: Object) -> Placement | None:
    """Pods of a Workload in the order of its domains, which Kueue sorts and fills by completion index.

    None before its admission, or where no server is named.
    """
    told = next((each["topologyAssignment"] for each in _assigned(workload) if each.get("topologyAssignment")), None)
    if told is None or told["levels"][-1:] != [HOSTNAME]:
        return None
    servers = tuple(_server(values) for values, count in _domains(told) for _ in range(count))
    return Placement(servers=servers, devices_per_server=0, labels=tuple(told["levels"])) if servers else None


def off_flavor(pods: Iterable[Object], labels: Mapping[str, str]) -> str:
    """Which pod may run where no quota counts it: a Kueue that speaks to another Trainer loses the labels; or empty."""
    for pod in pods:
        selector = pod["spec"].get("nodeSelector") or {}
        lacking = {key: value for key, value in labels.items() if selector.get(key) != value}
        if lacking:
            return (
                f"pod {pod['metadata']['name']}: wanted the node selector {lacking} of its flavor, found "
                f'{selector or "none"}; this Kueue does not speak to this Trainer: launch.launcher = "job" works'
            )
    return ""


def _assigned(workload: Object) -> list[Any]:
    return ((workload.get("status") or {}).get("admission") or {}).get("podSetAssignments") or []


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
