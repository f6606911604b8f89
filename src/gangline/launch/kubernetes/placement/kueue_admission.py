"""Admission of a gang by Kueue: the servers, quota and evictions of its Workload, and whether its pods keep to them.

With a topology, Kueue names the server of each pod, and nothing else: groups are the labels of the Topology's levels on
the nodes. It also names the flavors on whose quota the pods count; the pods must select the labels of these flavors.
"""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gangline.launch.kubernetes.client.api import ApiForbidden, KubernetesApi, Object
from gangline.launch.kubernetes.cluster.facts import ClusterFacts
from gangline.launch.kubernetes.objects.kueue import GROUP, QUEUE_NAME
from gangline.launch.kubernetes.objects.labels import HOSTNAME, collection_path
from gangline.launch.kubernetes.placement.servers import locate_servers
from gangline.launch.kubernetes.state.pods import is_living, list_pods, node_rank, true_condition
from gangline.launch.kubernetes.state.roots import JOBSET, TRAINJOB, Root
from gangline.spec.gang.podset import PlacedServer

_LOOK_SECONDS = 3.0
"""Pause between reads of the Workload, while there are unchecked pods."""


class KueueAdmission:
    """Follows the admission of one gang, and the next one after it was evicted."""

    def __init__(self, api: KubernetesApi, *, facts: ClusterFacts) -> None:
        self.levels: tuple[str, ...] = ()
        """Node labels of the levels of its Topology above single servers, widest first; empty: none are known."""
        self.unknown = ""
        """Why the group of a server is not known; empty: all are, or Kueue names no servers."""
        self.wrong = ""
        """Why the gang must not continue; empty: it may."""
        self.eviction: Eviction | None = None
        """The latest one; None: none was seen."""
        self._api, self._facts = api, facts
        self._looked = float("-inf")
        self._assigned: tuple[PlacedServer, ...] = ()
        self._checked: set[str] = set()

    def placed(self, pods: Sequence[Object]) -> tuple[PlacedServer, ...]:
        """Servers that Kueue gave the gang, in node-rank order; empty: none, or it may have given others since."""
        return () if _bound(pods) - self._checked else in_order_of_pods(self._assigned, pods)

    def is_due(self, root: Root, pods: Iterable[Object]) -> bool:
        """Whether the pause is over and a pod of a running gang is unchecked, or a gang was suspended since."""
        if not _is_queued(root) or time.monotonic() - self._looked < _LOOK_SECONDS:
            return False
        if root.is_suspended:
            return bool(self._assigned or self._checked)
        return any(_uid(pod) not in self._checked for pod in pods if is_living(pod))

    def look(self, root: Root, pods: Sequence[Object]) -> None:
        """Read the Workload and check the pods. Raises `ApiForbidden` if this account may not read flavors."""
        self._looked = time.monotonic()
        workload = None if root.is_suspended else read_workload(self._api, root, self._facts)
        self.see_evictions(workload)
        if workload is None or admission(workload) is None:
            self._assigned, self._checked, self.unknown = (), set(), ""
            return
        try:
            self._check(root, pods, workload)
        except ApiForbidden as denied:
            self._assigned = tuple(PlacedServer(name=name) for name in assigned_servers(workload))
            self._checked, self.unknown = _bound(pods), str(denied) if self._assigned else ""
            raise

    def _check(self, root: Root, pods: Sequence[Object], workload: Object) -> None:
        flavors = [self._flavor(name) for name in assigned_flavors(workload)]
        labels = {key: value for flavor in flavors for key, value in (flavor.get("nodeLabels") or {}).items()}
        if off_flavor(root, pods, labels):  # the watch of the pods may lag behind the Workload
            pods = list_pods(self._api, str(root.object["metadata"]["name"]))
            again = read_workload(self._api, root, self._facts)
            if again is None or admission(again) != admission(workload):
                return
        self.wrong = off_flavor(root, pods, labels)
        self._locate(assigned_servers(workload), flavors)
        self._checked = _bound(pods)

    def see_evictions(self, workload: Object | None) -> None:
        """Note the latest eviction that `workload` tells of."""
        self.eviction = (latest_eviction(workload) if workload is not None else None) or self.eviction

    def _locate(self, names: Sequence[str], flavors: Sequence[Object]) -> None:
        self.levels = self._group_levels(
            {str(flavor["topologyName"]) for flavor in flavors if "topologyName" in flavor}
        )
        self._assigned, self.unknown = (
            locate_servers(self._api, names, levels=self.levels, by_host=True) if names else ((), "")
        )

    def _group_levels(self, topologies: set[str]) -> tuple[str, ...]:
        if not topologies:
            return ()
        found, _ = self._api.items(f"/apis/{GROUP}/{kueue_version(self._facts)}/topologies")
        levels = next((each["spec"]["levels"] for each in found if each["metadata"]["name"] in topologies), ())
        return tuple(level["nodeLabel"] for level in levels if level["nodeLabel"] != HOSTNAME)

    def _flavor(self, name: str) -> Object:
        found = self._api.get(f"/apis/{GROUP}/{kueue_version(self._facts)}/resourceflavors/{name}") or {}
        return found.get("spec") or {}


def in_order_of_pods(assigned: Sequence[PlacedServer], pods: Iterable[Object]) -> tuple[PlacedServer, ...]:
    """`assigned`, each at the rank of the living pod that is on it, the others in turn on the ranks that are left."""
    given: dict[str, list[int]] = {}
    for number, server in enumerate(assigned):
        given.setdefault(server.name, []).append(number)
    taken: dict[int, int] = {}
    for pod in filter(is_living, pods):
        rank, numbers = node_rank(pod), given.get(_host(pod))
        if numbers and rank < len(assigned) and rank not in taken:
            taken[rank] = numbers.pop(0)
    left = iter(sorted(number for numbers in given.values() for number in numbers))
    return tuple(assigned[taken[rank] if rank in taken else next(left)] for rank in range(len(assigned)))


def off_flavor(root: Root, pods: Iterable[Object], labels: Mapping[str, str]) -> str:
    """Why a living pod may run outside the quota on which it counts; empty: none does."""
    for pod in filter(is_living, pods):
        selector = pod["spec"].get("nodeSelector") or {}
        lacking = {key: value for key, value in labels.items() if selector.get(key) != value}
        if lacking:
            return (
                f"pod {pod['metadata']['name']}: wanted the node selector {lacking} of its flavor, found "
                f"{selector or 'none'}; {_culprit(root, lacking)}"
            )
    return ""


def _culprit(root: Root, lacking: Mapping[str, str]) -> str:
    """Where to look for what removed the selector, which Kueue writes into the root."""
    if f"/{TRAINJOB.plural}/" in root.path:
        return 'this Kueue does not support this Trainer; launch.launcher = "job" works'
    kind = "JobSet" if f"/{JOBSET.plural}/" in root.path else "Job"
    if lacking.items() <= (_pod_template(root)["spec"].get("nodeSelector") or {}).items():
        return f"its {kind} has it, so look at the mutating webhooks for pods"
    return f"its {kind} lacks it, too, so look at what else changes a {kind}"


def _pod_template(root: Root) -> Object:
    """Pod template of a Job or a JobSet."""
    jobs = root.object["spec"].get("replicatedJobs")
    spec = jobs[0]["template"]["spec"] if jobs else root.object["spec"]
    template: Object = spec["template"]
    return template


def _is_queued(root: Root) -> bool:
    """Whether `root` is in a queue of Kueue, which then suspends and resumes it."""
    return QUEUE_NAME in (root.object["metadata"].get("labels") or {})


def _bound(pods: Iterable[Object]) -> set[str]:
    """Living pods that have a server, by uid."""
    return {_uid(pod) for pod in pods if is_living(pod) and pod["spec"].get("nodeName")}


def _host(pod: Object) -> str:
    """Server of the pod: the host name that it selects, else its node; empty: none yet."""
    return str((pod["spec"].get("nodeSelector") or {}).get(HOSTNAME) or pod["spec"].get("nodeName") or "")


def _uid(pod: Object) -> str:
    return str(pod["metadata"]["uid"])


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
    return sorted(
        {flavor for assignment in _assignments(workload) for flavor in (assignment.get("flavors") or {}).values()}
    )


def assigned_servers(workload: Object) -> tuple[str, ...]:
    """Host names in the order of its domains; empty before its admission, or if the Topology does not end at hosts.

    Kueue fills domains by completion index, but sorts them again when it replaces a lost server.
    """
    assigned = next(
        (
            assignment["topologyAssignment"]
            for assignment in _assignments(workload)
            if assignment.get("topologyAssignment")
        ),
        None,
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
