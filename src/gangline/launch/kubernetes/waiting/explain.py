"""The one sentence: the gravest thing that any part of the cluster says of a gang that does not run yet."""

from collections.abc import Callable

from gangline.launch.kubernetes.client.api import Object
from gangline.launch.kubernetes.objects.labels import GANG, QUEUED, WAITS
from gangline.launch.kubernetes.state.pods import phase, true_condition
from gangline.launch.kubernetes.waiting import admission, containers, images, kueue, scheduler, servers
from gangline.launch.kubernetes.waiting.snapshot import Snapshot, WaitingReason, counted, one_line

_GRAVEST_FIRST: tuple[Callable[[Snapshot], WaitingReason | None], ...] = (
    admission.refused,
    images.useless,
    containers.misconfigured,
    kueue.impossible,
    admission.no_jobset,
    servers.silent,
    containers.not_made,
    images.not_pulled,
    scheduler.unschedulable,
    admission.quota_used,
    kueue.queued,
)


def explain(seen: Snapshot) -> WaitingReason | None:
    """Why the gang does not run; None: it does, or did."""
    if seen.root is None or _has_ended(seen.root) or seen.num_up >= seen.num_nodes:
        return None
    for row in _GRAVEST_FIRST:
        if waiting := row(seen):
            return waiting
    return _on_its_way(seen)


def _has_ended(root: Object) -> bool:
    return any(true_condition(root, kind) for kind in ("Complete", "Completed", "Failed"))


def _on_its_way(seen: Snapshot) -> WaitingReason:
    """Nothing is wrong: how far it is."""
    if ((seen.root or {}).get("spec") or {}).get("suspend"):
        return _suspended(seen)
    if gated := sum(bool((pod.get("spec") or {}).get("schedulingGates")) for pod in seen.pods):
        placed = len(seen.pods) - gated
        return WaitingReason(kind="placing", sentence=f"being placed: {placed} of {seen.num_nodes} pods have a server")
    if len(seen.pods) < seen.num_nodes:
        return WaitingReason(kind="creating", sentence=f"{len(seen.pods)} of {seen.num_nodes} pods are made")
    return images.pulling(seen) or _starting(seen)


def _suspended(seen: Snapshot) -> WaitingReason:
    annotations = (seen.root or {})["metadata"].get("annotations") or {}
    if said := annotations.get(WAITS):
        return WaitingReason(kind="placer", sentence=one_line(said), raw=said)
    if QUEUED in annotations:
        return WaitingReason(kind="placer", sentence="in the queue of the placer, which has not looked at it yet")
    return WaitingReason(kind="suspended", sentence="suspended: a queue holds it, or its submission is not finished")


def _starting(seen: Snapshot) -> WaitingReason:
    running = sum(phase(pod) == "Running" for pod in seen.pods)
    if running < seen.num_nodes:
        return WaitingReason(kind="starting", sentence=f"{running} of {seen.num_nodes} pods have started")
    waits = counted(seen.num_nodes - seen.num_up, "pod", "pods")
    metadata = (seen.root or {})["metadata"]
    gang, namespace = (metadata.get("labels") or {}).get(GANG, "NAME"), metadata.get("namespace", "NAMESPACE")
    look = f"kubectl -n {namespace} logs -l {GANG}={gang} shows what they do"
    return WaitingReason(kind="joining", sentence=f"all pods run; ranks of {waits} have not joined yet; {look}")
