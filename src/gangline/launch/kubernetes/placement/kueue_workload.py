"""Workload of a gang in Kueue: where it is, on which flavors and servers it was admitted, how often it was evicted."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gangline.launch.kubernetes.client.api import KubernetesApi, Object
from gangline.launch.kubernetes.cluster.facts import ClusterFacts
from gangline.launch.kubernetes.objects.kueue import GROUP
from gangline.launch.kubernetes.objects.labels import HOSTNAME, collection_path
from gangline.launch.kubernetes.state.pods import true_condition
from gangline.launch.kubernetes.state.roots import Root

_VERSIONS = ("v1beta2", "v1beta1")
"""Newest first; they differ in the form of a topology assignment only."""


def kueue_version(facts: ClusterFacts) -> str | None:
    """Newest API version of Kueue that the cluster serves; None: it serves none."""
    return next((each for each in _VERSIONS if f"{GROUP}/{each}/workloads" in facts.served), None)


def read_workload(api: KubernetesApi, root: Root, facts: ClusterFacts) -> Object | None:
    """The Workload of `root`; None: there is no Kueue, or it has not created one yet."""
    version = kueue_version(facts)
    if version is None:
        return None
    path = collection_path(f"{GROUP}/{version}", "workloads", api.namespace)
    found, _ = api.items(path, labels=f"{GROUP}/job-uid={root.uid}")
    return found[0] if found else None


def admission(workload: Object) -> tuple[Object, str] | None:
    """Assignments of the present admission and its time, which tell it from any other; None: it is not admitted."""
    condition = true_condition(workload, "Admitted")
    if condition is None:
        return None
    return (workload["status"].get("admission") or {}), str(condition.get("lastTransitionTime", ""))


def assigned_flavors(workload: Object) -> list[str]:
    """Names of the flavors on whose quota it counts, sorted."""
    return sorted({flavor for each in _assignments(workload) for flavor in (each.get("flavors") or {}).values()})


def assigned_servers(workload: Object) -> tuple[str, ...]:
    """Host names in the order of its domains; empty before its admission, or if the Topology does not end at hosts.

    Kueue fills domains by completion index, but sorts them again when it replaces a lost server.
    """
    assigned = next(
        (each["topologyAssignment"] for each in _assignments(workload) if each.get("topologyAssignment")), None
    )
    if assigned is None or assigned["levels"][-1:] != [HOSTNAME]:
        return ()
    return tuple(host for host, count in _hosts(assigned) for _ in range(count))


def _assignments(workload: Object) -> list[Any]:
    return ((workload.get("status") or {}).get("admission") or {}).get("podSetAssignments") or []


def _hosts(assigned: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    """(host name, pods) of each domain, from the form of either version."""
    for domain in assigned.get("domains") or ():
        yield str(domain["values"][-1]), int(domain["count"])
    for part in assigned.get("slices") or ():
        number = int(part["domainCount"])
        counts = part["podCounts"]
        pods = counts.get("individual") or [counts["universal"]] * number
        yield from zip(_values(part["valuesPerLevel"][-1], number), map(int, pods), strict=True)


def _values(assigned: Mapping[str, Any], number: int) -> list[str]:
    if "universal" in assigned:
        return [str(assigned["universal"])] * number
    each = assigned["individual"]
    return [f"{each.get('prefix', '')}{root}{each.get('suffix', '')}" for root in each["roots"]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Eviction:
    """The latest time that Kueue took a gang's quota, and with it stopped its pods."""

    times: int
    """Evictions so far."""
    message: str


def latest_eviction(workload: Object) -> Eviction | None:
    """The latest eviction, also after the gang was admitted again; None: there was none."""
    status = workload.get("status") or {}
    counts = (status.get("schedulingStats") or {}).get("evictions") or ()
    condition = next((each for each in status.get("conditions") or () if each.get("type") == "Evicted"), None)
    if condition is None:
        return None
    times = sum(int(each.get("count") or 0) for each in counts)
    message = str(condition.get("message") or "").removeprefix("Previously: ")
    return Eviction(times=max(times, 1), message=message)
