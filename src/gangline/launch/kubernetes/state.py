"""The state of a gang, from its root and its pods. Pure."""

from gangline.launch.kubernetes.api import Object
from gangline.launch.kubernetes.pods import is_ready, node_rank, phase
from gangline.launch.kubernetes.roots import Root
from gangline.launch.protocol import GangStatus
from gangline.spec.gang import GangState
from gangline.spec.podset import PodSet


def gang_state(root: Root, pods: list[Object], num_nodes: int) -> GangState:
    """State of the gang behind `root`, whose pods are `pods`."""
    if root.outcome is not None and not root.is_being_deleted:
        return "ended"
    if root.is_being_deleted or root.cancelled is not None or root.condition("FailureTarget"):
        return "stopping"
    if root.is_suspended or not pods:
        return "waiting"
    up = sum(is_ready(pod) or phase(pod) == "Succeeded" for pod in pods)
    return "running" if up >= num_nodes else "starting"


def status_of(state: GangState, pods: list[Object], podset: PodSet) -> GangStatus:
    """What pods alone tell: how many ranks are ready, and where they are."""
    placed = [pod for pod in sorted(pods, key=node_rank) if (pod.get("spec") or {}).get("nodeName")]
    return GangStatus(
        state=state,
        joined=sum(is_ready(pod) for pod in pods) * podset.procs_per_node,
        ranks=podset.world_size,
        servers=tuple(pod["spec"]["nodeName"] for pod in placed),
    )
