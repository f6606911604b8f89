"""Admission of a gang by Kueue: the servers and quota that its Workload names, and whether its pods keep to them.

With a topology, Kueue names the server of each pod, and nothing else: groups are the labels of the Topology's levels on
the nodes. It also names the flavors on whose quota the pods count; the pods must select the labels of these flavors.
"""

import time
from collections.abc import Iterable, Mapping, Sequence

from gangline.launch.kubernetes.client.api import ApiForbidden, KubernetesApi, Object
from gangline.launch.kubernetes.cluster.facts import ClusterFacts
from gangline.launch.kubernetes.objects.kueue import GROUP, QUEUE_NAME
from gangline.launch.kubernetes.objects.labels import HOSTNAME
from gangline.launch.kubernetes.placement.kueue_workload import (
    Eviction,
    admission,
    assigned_flavors,
    assigned_servers,
    kueue_version,
    latest_eviction,
    read_workload,
)
from gangline.launch.kubernetes.placement.observed_servers import locate_servers
from gangline.launch.kubernetes.state.pods import is_living, list_pods, node_rank
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
        flavors = [self._read_spec("resourceflavors", name) for name in assigned_flavors(workload)]
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
        return tuple(each["nodeLabel"] for each in levels if each["nodeLabel"] != HOSTNAME)

    def _read_spec(self, plural: str, name: str) -> Object:
        found = self._api.get(f"/apis/{GROUP}/{kueue_version(self._facts)}/{plural}/{name}") or {}
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
