"""Pods of a gang: where they are listed, what one of them says of itself."""

from typing import Any

from gangline.launch.kubernetes.api.protocol import Api, Object
from gangline.launch.kubernetes.objects.setting import GANG, collection

INDEX = "batch.kubernetes.io/job-completion-index"
DISRUPTION = "DisruptionTarget"
"""Condition of a pod that the platform took: its end is not its own fault."""


def phase(pod: Object) -> str:
    return str((pod.get("status") or {}).get("phase", "Pending"))


def is_ready(pod: Object) -> bool:
    return true_condition(pod, "Ready") is not None


def is_over(pod: Object) -> bool:
    return phase(pod) in ("Succeeded", "Failed")


def is_living(pod: Object) -> bool:
    """Neither ended nor on its way out."""
    return not is_over(pod) and pod["metadata"].get("deletionTimestamp") is None


def node_rank(pod: Object) -> int:
    """Its place in the gang; pods that say none count as the first."""
    metadata: dict[str, Any] = pod["metadata"]
    for said in (metadata.get("annotations") or {}, metadata.get("labels") or {}):
        if str(said.get(INDEX, "")).isdecimal():
            return int(said[INDEX])
    return 0


def pods_path(api: Api) -> str:
    return collection("v1", "pods", api.namespace)


def pods_of(api: Api, name: str) -> list[Object]:
    """Pods of a gang, in node-rank order."""
    found, _ = api.items(pods_path(api), labels=f"{GANG}={name}")
    return sorted(found, key=lambda pod: (node_rank(pod), pod["metadata"].get("creationTimestamp", "")))


def true_condition(value: Object, kind: str) -> Object | None:
    for each in (value.get("status") or {}).get("conditions") or ():
        if each.get("type") == kind and each.get("status") == "True":
            found: Object = each
            return found
    return None
