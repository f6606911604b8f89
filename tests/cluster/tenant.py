"""What a namespace for gangs holds before the first gang, as the project's manifests have it."""

from typing import Any

from tests.cluster.rig.kubectl import Kubectl

_LEVELS = {"low": -1000, "normal": 0, "high": 1000}


def objects(namespace: str, kubectl: Kubectl) -> list[dict[str, Any]]:
    restricted = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "warn")}
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace, "labels": restricted}},
        {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": "gangline-gang", "namespace": namespace},
            "automountServiceAccountToken": False,
        },
        *(
            {
                "apiVersion": "scheduling.k8s.io/v1",
                "kind": "PriorityClass",
                "metadata": {"name": f"gangline-{level}"},
                "value": value,
            }
            for level, value in _LEVELS.items()
        ),
    ]
