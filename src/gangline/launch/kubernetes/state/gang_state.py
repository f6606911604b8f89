"""State of a gang, computed from its root and its pods. No I/O."""

from collections.abc import Sequence

from gangline.launch.kubernetes.client.api import Object
from gangline.launch.kubernetes.objects.labels import HOSTNAME
from gangline.launch.kubernetes.state.gang_end import is_disrupted, pod_end, was_terminated
from gangline.launch.kubernetes.state.pods import is_living, is_ready, node_rank, phase
from gangline.launch.kubernetes.state.roots import Root
from gangline.launch.protocol import GangStatus
from gangline.spec.gang.podset import PlacedServer, PodSet
from gangline.spec.gang.status import GangState


def gang_state(root: Root, pods: list[Object], num_nodes: int) -> GangState:
    """State of the gang behind `root`, whose pods are `pods`."""
    if root.outcome is not None and not root.is_being_deleted:
        return "ended"
    if root.is_being_deleted or root.cancelled is not None or root.condition("FailureTarget"):
        return "stopping"
    if root.is_suspended or not pods:
        return "waiting"
    if any(_ends_the_gang(pod) for pod in pods):
        return "stopping"
    up = sum(is_ready(pod) or phase(pod) == "Succeeded" for pod in pods)
    return "running" if up >= num_nodes else "starting"


def _ends_the_gang(pod: Object) -> bool:
    """Whether the failure policy of its Job ends the gang; under JobSet and Trainer the root does not show it yet."""
    return phase(pod) == "Failed" and not is_disrupted(pod) and not was_terminated(pod)


def status_of(
    state: GangState, pods: list[Object], podset: PodSet, *, placed: Sequence[PlacedServer] = ()
) -> GangStatus:
    """Status from the pods: number of ready ranks, servers, and restarts of the pods that have ended.

    Args:
        state: Of the gang.
        pods: Of the gang.
        podset: Of the gang.
        placed: Servers assigned to its pods in node-rank order, as far as known.
    """
    ends = [found.end for pod in pods if (found := pod_end(pod)) is not None]
    return GangStatus(
        state=state,
        joined=sum(is_ready(pod) for pod in pods) * podset.procs_per_node,
        ranks=podset.world_size,
        generation=max((end.generation for end in ends), default=0),
        restarts=max((end.restarts for end in ends), default=0),
        servers=_servers(pods, [each.name for each in placed] if state in ("starting", "running") else ()),
        placed=tuple(placed),
        tile=podset.tile,
    )


def _servers(pods: list[Object], given: Sequence[str]) -> tuple[str, ...]:
    """Servers in node-rank order; a bound pod overrides `given`, a living pod overrides one being deleted.

    A pod that selects one host name is bound to a node of that name, which the node object need not have.
    """
    places = dict(enumerate(given))
    for pod in sorted(pods, key=is_living):
        spec = pod.get("spec") or {}
        if node := spec.get("nodeName"):
            places[node_rank(pod)] = (spec.get("nodeSelector") or {}).get(HOSTNAME, node)
    return tuple(places[rank] for rank in sorted(places))
