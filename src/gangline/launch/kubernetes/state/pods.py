"""Pods of a gang: the list of them, and phase, readiness and rank of each."""

from typing import Any

from gangline.launch.kubernetes.client.api import KubernetesApi, Object
from gangline.launch.kubernetes.objects.labels import CONTAINER, GANG, INDEX, collection_path


def phase(pod: Object) -> str:
    """`status.phase`; `Pending` if it is not set yet."""
    return str((pod.get("status") or {}).get("phase", "Pending"))


def is_ready(pod: Object) -> bool:
    """Whether the pod's condition `Ready` is true."""
    return true_condition(pod, "Ready") is not None


def is_over(pod: Object) -> bool:
    """Whether the pod has succeeded or failed."""
    return phase(pod) in ("Succeeded", "Failed")


def is_living(pod: Object) -> bool:
    """Whether the pod has neither ended nor is being deleted."""
    return not is_over(pod) and pod["metadata"].get("deletionTimestamp") is None


def node_rank(pod: Object) -> int:
    """Node rank of the pod, from its completion index; 0 if it has none."""
    metadata: dict[str, Any] = pod["metadata"]
    for said in (metadata.get("annotations") or {}, metadata.get("labels") or {}):
        if str(said.get(INDEX, "")).isdecimal():
            return int(said[INDEX])
    return 0


def pods_path(api: KubernetesApi) -> str:
    """Path of the pods of the namespace of `api`."""
    return collection_path("v1", "pods", api.namespace)


def list_pods(api: KubernetesApi, name: str) -> list[Object]:
    """Pods of a gang, in node-rank order."""
    found, _ = api.items(pods_path(api), labels=f"{GANG}={name}")
    return sorted(found, key=lambda pod: (node_rank(pod), pod["metadata"].get("creationTimestamp", "")))


def true_condition(value: Object, kind: str) -> Object | None:
    """Condition of type `kind` if its status is `True`, else None."""
    for each in (value.get("status") or {}).get("conditions") or ():
        if each.get("type") == kind and each.get("status") == "True":
            found: Object = each
            return found
    return None


def end_condition(root: Object) -> Object | None:
    """Condition by which a Job, JobSet or TrainJob has ended, successful or failed; None: it has not ended."""
    return true_condition(root, "Complete") or true_condition(root, "Completed") or true_condition(root, "Failed")


def owner_name(pod: Object) -> str:
    """Name of the pod's gang, else of its first owner, else its own."""
    metadata = pod["metadata"]
    if gang := (metadata.get("labels") or {}).get(GANG):
        return str(gang)
    owners = metadata.get("ownerReferences") or [{"name": metadata.get("name", "?")}]
    return str(owners[0].get("name", "?"))


def terminated_state(pod: Object, name: str = CONTAINER, *, statuses: str = "containerStatuses") -> Object | None:
    """`state.terminated` of container `name`; None: it has not ended."""
    for each in (pod.get("status") or {}).get(statuses) or ():
        if each.get("name") == name:
            found: Object | None = (each.get("state") or {}).get("terminated")
            return found
    return None
