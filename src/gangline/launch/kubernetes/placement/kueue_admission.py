"""Admission of a gang by Kueue: the Workload of its root, and the servers and quota assigned to it. Reads only.

With a topology, Kueue names the server of each pod, in node-rank order. It also names the flavors on whose quota the
pods count; the pods must select the labels of these flavors. `KueueAdmission` follows this for one gang.
"""

import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from gangline.launch.kubernetes.client.api import KubernetesApi, Object
from gangline.launch.kubernetes.cluster.facts import ClusterFacts
from gangline.launch.kubernetes.objects.kueue import GROUP, QUEUE_NAME
from gangline.launch.kubernetes.objects.labels import HOSTNAME, collection_path
from gangline.launch.kubernetes.state.pods import true_condition
from gangline.launch.kubernetes.state.roots import Root
from gangline.spec.gang.podset import PlacedServer

_VERSIONS = ("v1beta2", "v1beta1")
"""Newest first; they differ in the form of a topology assignment only."""


def kueue_version(facts: ClusterFacts) -> str | None:
    """Newest API version of Kueue that the cluster serves; None: it serves none."""
    return next((each for each in _VERSIONS if f"{GROUP}/{each}/workloads" in facts.served), None)


def _is_queued(root: Root) -> bool:
    """Whether `root` is in a queue of Kueue, which then suspends and resumes it."""
    return QUEUE_NAME in (root.object["metadata"].get("labels") or {})


def read_workload(api: KubernetesApi, root: Root, facts: ClusterFacts) -> Object | None:
    """The Workload of `root`; None: there is no Kueue, or it has not created one yet."""
    version = kueue_version(facts)
    if version is None:
        return None
    path = collection_path(f"{GROUP}/{version}", "workloads", api.namespace)
    found, _ = api.items(path, labels=f"{GROUP}/job-uid={root.uid}")
    return found[0] if found else None


def _read_flavor_labels(api: KubernetesApi, workload: Object, facts: ClusterFacts) -> dict[str, str]:
    """Node labels of the flavors on whose quota `workload` counts. Raises `ApiForbidden`."""
    labels: dict[str, str] = {}
    for name in sorted({flavor for each in _assigned(workload) for flavor in (each.get("flavors") or {}).values()}):
        found = api.get(f"/apis/{GROUP}/{kueue_version(facts)}/resourceflavors/{name}") or {}
        labels |= (found.get("spec") or {}).get("nodeLabels") or {}
    return labels


def is_admitted(workload: Object) -> bool:
    """Whether Kueue has admitted the Workload."""
    return true_condition(workload, "Admitted") is not None


def assignment(workload: Object) -> tuple[PlacedServer, ...]:
    """Servers of a Workload in the order of its domains, which Kueue sorts and fills by completion index.

    Empty before its admission, or if it names no servers.
    """
    assigned = next(
        (each["topologyAssignment"] for each in _assigned(workload) if each.get("topologyAssignment")), None
    )
    if assigned is None or assigned["levels"][-1:] != [HOSTNAME]:
        return ()
    return tuple(_server(values) for values, count in _domains(assigned) for _ in range(count))


def off_flavor(pods: Iterable[Object], labels: Mapping[str, str]) -> str:
    """Why a pod may run outside the quota on which it counts, as with an unsupported Trainer; empty: none does."""
    for pod in pods:
        selector = pod["spec"].get("nodeSelector") or {}
        lacking = {key: value for key, value in labels.items() if selector.get(key) != value}
        if lacking:
            return (
                f"pod {pod['metadata']['name']}: wanted the node selector {lacking} of its flavor, found "
                f'{selector or "none"}; this Kueue does not support this Trainer; launch.launcher = "job" works'
            )
    return ""


def _assigned(workload: Object) -> list[Any]:
    return ((workload.get("status") or {}).get("admission") or {}).get("podSetAssignments") or []


def _domains(assigned: Mapping[str, Any]) -> Iterator[tuple[list[str], int]]:
    """(value of each level, pods) of each domain, from either form."""
    for domain in assigned.get("domains") or ():
        yield list(domain["values"]), int(domain["count"])
    for part in assigned.get("slices") or ():
        number = int(part["domainCount"])
        levels = [_values(each, number) for each in part["valuesPerLevel"]]
        counts = part["podCounts"]
        pods = counts.get("individual") or [counts["universal"]] * number
        for place in range(number):
            yield [values[place] for values in levels], int(pods[place])


def _values(assigned: Mapping[str, Any], number: int) -> list[str]:
    if "universal" in assigned:
        return [str(assigned["universal"])] * number
    each = assigned["individual"]
    return [f"{each.get('prefix', '')}{root}{each.get('suffix', '')}" for root in each["roots"]]


def _server(values: list[str]) -> PlacedServer:
    """Host name, the level above it as the group, the one above that as the block."""
    block, group, name = ["", "", *values][-3:]
    return PlacedServer(name=name, group=group, block=block)


_LOOK_SECONDS = 3.0
"""Pause between reads of the Workload, while there are unchecked pods."""


class KueueAdmission:
    """Follows the admission of one gang, also after an eviction."""

    def __init__(self, api: KubernetesApi, *, facts: ClusterFacts) -> None:
        self.servers: tuple[PlacedServer, ...] = ()
        """Servers that Kueue assigned, in node-rank order; empty: none."""
        self.wrong = ""
        """Why the gang must not continue; empty: it may."""
        self._api, self._facts = api, facts
        self._looked = float("-inf")
        self._checked: set[str] = set()

    def is_due(self, root: Root, pods: Iterable[Object]) -> bool:
        """Whether a pod of a running gang is unchecked and the pause is over."""
        if not _is_queued(root) or time.monotonic() - self._looked < _LOOK_SECONDS:
            return False
        return not root.is_suspended and any(_uid(pod) not in self._checked for pod in pods)

    def look(self, root: Root, pods: list[Object]) -> None:
        """Read the Workload and check the pods. Raises `ApiForbidden` if this account may not read flavors."""
        self._looked = time.monotonic()
        workload = read_workload(self._api, root, self._facts)
        if workload is None or not is_admitted(workload):
            return
        self.servers = assignment(workload)
        self.wrong = off_flavor(pods, _read_flavor_labels(self._api, workload, self._facts))
        self._checked |= {_uid(pod) for pod in pods}


def _uid(pod: Object) -> str:
    return str(pod["metadata"]["uid"])
